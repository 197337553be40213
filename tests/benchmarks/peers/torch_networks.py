"""The networks of networks.py as torch modules, with the layers that Opacus asks for or with
torch's own.

Recurrent layers have two biases in torch, which adds 400 parameters to the LSTM for IMDb; the
others have the same number as in networks.py.
"""

import sys
from pathlib import Path

import torch
from opacus.layers import DPLSTM, DPRNN, DPMultiheadAttention
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from problems import NUM_FEATURES, NUM_TOKENS, RECORDS, VOCABULARY

__all__ = ["NETWORKS", "minibatch"]


class Mean(nn.Module):
    """The mean over one axis, or several."""

    def __init__(self, *axes):
        super().__init__()
        self.axes = axes

    def forward(self, x):
        return x.mean(self.axes)


class Recurrent(nn.Module):
    """All hidden states of a recurrent layer, or only the last."""

    def __init__(self, layer, last):
        super().__init__()
        self.layer, self.last = layer, last

    def forward(self, x):
        states = self.layer(x)[0]
        return states[:, -1] if self.last else states


class Channel(nn.Module):
    """Images without channels get one."""

    def forward(self, x):
        return x[:, None]


class EncoderBlock(nn.Module):
    """Attention and a feed-forward part, each added to its input and normalised."""

    def __init__(self, attention, width, heads, feed_forward):
        super().__init__()
        self.attention = attention(width, heads, batch_first=True)
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fed = nn.Sequential(
            nn.Linear(width, feed_forward), nn.ReLU(), nn.Linear(feed_forward, width)
        )
        angles = torch.arange(NUM_TOKENS)[:, None] / 10_000 ** (
            torch.arange(width // 2) / (width // 2)
        )
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], dim=1))

    def forward(self, x):
        x = x + self.positions
        x = self.first_norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.second_norm(x + self.fed(x))


def _fcnn(private):
    return nn.Sequential(nn.Linear(NUM_FEATURES, 50), nn.ReLU(), nn.Linear(50, 2))


def _mnist_cnn(private):
    convolutions = [nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1)]
    convolutions += [nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1)]
    return nn.Sequential(
        Channel(), *convolutions, nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)
    )


def _cifar_cnn(private):
    channels = (3, 32, 32, 64, 64, 128, 128, 256)
    layers = []
    for number in range(7):
        layers += [nn.Conv2d(channels[number], channels[number + 1], 3, padding=1), nn.ReLU()]
        if number in (1, 3, 5):
            layers.append(nn.AvgPool2d(2))
    return nn.Sequential(*layers, nn.Conv2d(256, 10, 3, padding=1), Mean(2, 3))


def _imdb_lstm(private):
    lstm = (DPLSTM if private else nn.LSTM)(100, 100, batch_first=True)
    return nn.Sequential(
        nn.Embedding(VOCABULARY, 100), Recurrent(lstm, last=False), Mean(1), nn.Linear(100, 2)
    )


def _embedding(private):
    return nn.Sequential(nn.Embedding(VOCABULARY, 16), Mean(1), nn.Linear(16, 2))


def _mlp(private):
    hidden = [nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 256), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(256, 10))


def _row_rnn(private):
    rnn = (DPRNN if private else nn.RNN)(28, 128, batch_first=True)
    return nn.Sequential(Recurrent(rnn, last=True), nn.Linear(128, 10))


def _row_lstm(private):
    lstm = (DPLSTM if private else nn.LSTM)(28, 128, batch_first=True)
    return nn.Sequential(Recurrent(lstm, last=True), nn.Linear(128, 10))


def _transformer(private):
    block = EncoderBlock(DPMultiheadAttention if private else nn.MultiheadAttention, 128, 4, 256)
    return nn.Sequential(nn.Embedding(VOCABULARY, 128), block, Mean(1), nn.Linear(128, 2))


# name -> function of whether Opacus will make it private
NETWORKS = {
    "fcnn": _fcnn,
    "mnist_cnn": _mnist_cnn,
    "cifar_cnn": _cifar_cnn,
    "imdb_lstm": _imdb_lstm,
    "embedding": _embedding,
    "mlp": _mlp,
    "row_rnn": _row_rnn,
    "row_lstm": _row_lstm,
    "transformer": _transformer,
}


def minibatch(name, size):
    """The records that the contenders in JAX see, with torch's order of axes and its type of
    classes.
    """
    x, y = map(torch.from_numpy, RECORDS[name](size))
    return x.permute(0, 3, 1, 2).contiguous() if x.ndim == 4 else x, y.long()
