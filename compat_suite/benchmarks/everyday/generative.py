"""Models that make data like those they saw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def vae(T: Any) -> Callable[[], float]:
    """A variational autoencoder."""
    nn, F = T.nn, T.nn.functional
    T.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(196, 128), nn.ReLU(), nn.Linear(128, 32))
    decoder = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 196))
    optimizer = T.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-3)
    x = T.rand(64, 196)

    def step() -> float:
        mean, log_variance = encoder(x).chunk(2, 1)
        z = mean + T.randn_like(mean) * (0.5 * log_variance).exp()
        reconstruction = F.binary_cross_entropy_with_logits(decoder(z), x, reduction="sum")
        loss = reconstruction - 0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def gan(T: Any) -> Callable[[], float]:
    """A generative adversarial network: two optimizers take turns."""
    nn = T.nn
    T.manual_seed(0)
    generator = nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(0.2), nn.Linear(64, 32))
    discriminator = nn.Sequential(nn.Linear(32, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    generator_optimizer = T.optim.Adam(generator.parameters(), 2e-4, (0.5, 0.999))
    discriminator_optimizer = T.optim.Adam(discriminator.parameters(), 2e-4, (0.5, 0.999))
    real = T.randn(64, 32)
    one, zero = T.ones(64, 1), T.zeros(64, 1)
    criterion = nn.BCEWithLogitsLoss()

    def step() -> float:
        z = T.randn(64, 16)
        fake = generator(z)
        discriminator_loss = criterion(discriminator(real), one) + criterion(discriminator(fake.detach()), zero)
        discriminator_optimizer.zero_grad()
        discriminator_loss.backward()
        discriminator_optimizer.step()
        generator_loss = criterion(discriminator(fake), one)
        generator_optimizer.zero_grad()
        generator_loss.backward()
        generator_optimizer.step()
        return discriminator_loss.item() + generator_loss.item()

    return step


def wgan_gp(T: Any) -> Callable[[], float]:
    """The critic of a Wasserstein GAN, with a gradient penalty."""
    nn = T.nn
    T.manual_seed(0)
    critic = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = T.optim.RMSprop(critic.parameters(), 1e-4)
    a, b = T.randn(64, 32), T.randn(64, 32)

    def step() -> float:
        share = T.rand(64, 1)
        x = (share * a + (1 - share) * b).requires_grad_()
        (gradient,) = T.autograd.grad(critic(x).sum(), x, create_graph=True)
        loss = critic(a).mean() - critic(b).mean() + 10 * ((gradient.norm(2, dim=1) - 1) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def flow(T: Any) -> Callable[[], float]:
    """A normalizing flow of affine coupling layers."""
    nn = T.nn
    T.manual_seed(0)
    nets = nn.ModuleList([nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 4)) for _ in range(4)])
    optimizer = T.optim.Adam(nets.parameters(), 1e-3)
    x = T.randn(128, 4)
    base = T.distributions.Normal(T.zeros(4), T.ones(4))

    def step() -> float:
        z, log_determinant = x, 0
        for net in nets:
            a, b = z[:, :2], z[:, 2:]
            s, t = net(a).chunk(2, 1)
            s = T.tanh(s)
            z = T.cat([b * s.exp() + t, a], 1)
            log_determinant = log_determinant + s.sum(1)
        loss = -(base.log_prob(z).sum(1) + log_determinant).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def conv_autoencoder(T: Any) -> Callable[[], float]:
    """An autoencoder of strided and transposed convolutions."""
    nn, F = T.nn, T.nn.functional
    T.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 8, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 1, 4, 2, 1),
        nn.Sigmoid(),
    )
    optimizer = T.optim.Adam(model.parameters(), 1e-3)
    x = T.rand(16, 1, 28, 28)

    def step() -> float:
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


PROGRAMS = (vae, gan, wgan_gp, flow, conv_autoencoder)
