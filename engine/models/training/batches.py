"""What one training step sees: prose, repeated pieces of prose, and repeated random tokens.

Repetition is what makes copying pay, and so what makes induction heads form early (Olsson et al. 2022, arXiv
2209.11895). Each step draws from a generator seeded by (seed, step), so a resumed run sees what an unbroken one would.
"""

import numpy as np

IGNORED = -100
N_SPECIAL = 1


def batch(tokens: np.ndarray, step: int, seed: int, rows: int, context: int, vocab_size: int, repeats: int = 4):
    """Return (ids, labels), each (rows, context): one row in ``repeats`` repeated prose, one repeated noise, the rest prose.

    Every row begins with token 0 (<s>). The first occurrence of random tokens cannot be predicted and carries no
    label (-100).
    """
    rng = np.random.default_rng((seed, step))
    ids = np.zeros((rows, context), dtype=np.int64)
    labels = np.full((rows, context), IGNORED, dtype=np.int64)
    for row in range(rows):
        kind = row % repeats
        if kind == repeats - 1:
            body, first = repeated_noise(rng, vocab_size, context - 1)
        elif kind == repeats - 2:
            body, first = repeated_prose(rng, tokens, context - 1), 0
        else:
            body, first = prose(rng, tokens, context - 1), 0
        ids[row, 1:] = body
        labels[row, 1 + first :] = body[first:]
    return ids, labels


def prose(rng, tokens: np.ndarray, length: int) -> np.ndarray:
    """Return a random window of the text."""
    start = rng.integers(0, len(tokens) - length)
    return tokens[start : start + length]


def repeated_prose(rng, tokens: np.ndarray, length: int) -> np.ndarray:
    """Return a random prefix of 0 to 63 tokens, then a piece of 16 to 128 tokens over and over; all of it counts."""
    prefix = prose(rng, tokens, int(rng.integers(0, 64)))
    piece = prose(rng, tokens, int(np.exp(rng.uniform(np.log(16), np.log(129)))))
    return np.resize(np.concatenate([prefix, np.tile(piece, length // len(piece) + 1)]), length)


def repeated_noise(rng, vocab_size: int, length: int) -> tuple[np.ndarray, int]:
    """Return 8 to 120 uniformly random tokens over and over, and how many: the first occurrence does not count."""
    piece = rng.integers(N_SPECIAL, vocab_size, size=int(np.exp(rng.uniform(np.log(8), np.log(121)))))
    return np.resize(piece, length), len(piece)
