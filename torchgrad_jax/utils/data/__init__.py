"""`torch.utils.data`: datasets, samplers, and the loader that makes batches of them."""

from torchgrad_jax.utils.data._utils.collate import default_collate, default_convert
from torchgrad_jax.utils.data._utils.worker import get_worker_info
from torchgrad_jax.utils.data.dataloader import DataLoader, _DatasetKind
from torchgrad_jax.utils.data.datapipes._decorator import (
    argument_validation,
    functional_datapipe,
    guaranteed_datapipes_determinism,
    non_deterministic,
    runtime_validation,
    runtime_validation_disabled,
)
from torchgrad_jax.utils.data.datapipes.datapipe import DataChunk, DFIterDataPipe, IterDataPipe, MapDataPipe
from torchgrad_jax.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from torchgrad_jax.utils.data.distributed import DistributedSampler
from torchgrad_jax.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DFIterDataPipe", "DataChunk", "DataLoader", "Dataset", "DistributedSampler", "IterDataPipe",
    "IterableDataset", "MapDataPipe", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler",
    "TensorDataset", "WeightedRandomSampler", "_DatasetKind", "argument_validation", "default_collate", "default_convert", "functional_datapipe",
    "get_worker_info", "guaranteed_datapipes_determinism", "non_deterministic", "random_split", "runtime_validation", "runtime_validation_disabled",
]  # fmt: skip
