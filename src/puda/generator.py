"""The generator: invents entity rows that complete no known fact but could."""

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "leaky": nn.LeakyReLU}


class Generator(nn.Module):
    """G(z) = tanh(W2 relu(W1 z + b1) + b2), z ~ N(0, noise_std^2 I) (Eq. 12).

    The paper's z has the size d of an entity row, the hidden layer d/8, with dropout behind it
    (appendix A.2); the authors' code has z of size d/8 and a leaky ReLU.
    """

    def __init__(
        self,
        dim: int,
        *,
        noise_dim: int | None = None,
        noise_std: float = 1.0,
        activation: str = "relu",
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.noise_dim, self.noise_std = noise_dim or dim, noise_std
        hidden = max(1, dim // 8)
        self.layers = nn.Sequential(
            nn.Linear(self.noise_dim, hidden),
            ACTIVATIONS[activation](),
            nn.Dropout(dropout),
            nn.Linear(hidden, dim),
            nn.Tanh(),
        )

    def forward(self, count: int, stream: torch.Generator) -> Tensor:
        """Invent `count` rows (M, d)."""
        noise = torch.randn(count, self.noise_dim, generator=stream) * self.noise_std
        rows: Tensor = self.layers(noise)
        return rows
