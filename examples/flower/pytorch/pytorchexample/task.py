"""The network, its training and its data: images that are drawn at random, so that nothing is downloaded."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset

CLASSES, SIDE, EXAMPLES = 4, 8, 64


class Net(nn.Module):
    """A convolution with BatchNorm, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Linear(4 * (SIDE // 2) ** 2, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.last(x.flatten(1))


def load_data(partition_id: int, batch_size: int) -> tuple[DataLoader, DataLoader]:
    """Training and test data of one client; every client prefers other classes."""
    patterns = torch.randn(CLASSES, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    own = torch.Generator().manual_seed(1 + partition_id)
    chances = torch.rand(CLASSES, generator=own) ** 2
    labels = torch.multinomial(chances, EXAMPLES + partition_id, replacement=True, generator=own)
    images = patterns[labels] + 0.5 * torch.randn(len(labels), 1, SIDE, SIDE, generator=own)
    split = len(labels) * 4 // 5
    train, test = TensorDataset(images[:split], labels[:split]), TensorDataset(images[split:], labels[split:])
    return DataLoader(train, batch_size, shuffle=True), DataLoader(test, batch_size)


def train(net: Net, data: DataLoader, epochs: int, lr: float) -> float:
    """Train with SGD; the mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for images, labels in data:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(data))


def test(net: Net, data: DataLoader) -> tuple[float, float]:
    """Mean loss and accuracy."""
    net.eval()
    loss, right, number = 0.0, 0, 0
    with torch.no_grad():
        for images, labels in data:
            outputs = net(images)
            loss += F.cross_entropy(outputs, labels, reduction="sum").item()
            right += int((outputs.argmax(dim=1) == labels).sum())
            number += len(labels)
    return loss / number, right / number
