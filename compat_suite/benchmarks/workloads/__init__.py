"""Workloads by family, each written once against a torch-shaped namespace and once by hand in JAX, on the same random data."""

from compat_suite.benchmarks.workloads import adam, attention, chains, cnn, gpt, inplace_views, lstm, mlp, pinn, python_in_graph, resnet, rnn
from compat_suite.benchmarks.workloads.workload import Workload

WORKLOADS: dict[str, Workload] = {
    **chains.WORKLOADS,
    **mlp.WORKLOADS,
    **attention.WORKLOADS,
    **cnn.WORKLOADS,
    **rnn.WORKLOADS,
    **pinn.WORKLOADS,
    **python_in_graph.WORKLOADS,
    **inplace_views.WORKLOADS,
    **gpt.WORKLOADS,
    **resnet.WORKLOADS,
    **lstm.WORKLOADS,
    **adam.WORKLOADS,
}
