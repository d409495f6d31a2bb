"""Books in, token ids out: reading a folder of plain text and fitting a byte-level BPE tokenizer to it."""

from pathlib import Path

import numpy as np

from engine.errors import InputError

BOS = "<s>"
HELD_OUT = ("heidi.txt", "the-book-of-dragons.txt")
NEVER = ("shakespeare.txt", "README.md")


def read_book(path: Path) -> str:
    """Return a book's text with Unix newlines and without the title block that ends at a line of dashes."""
    text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
    head, rule, body = text.partition("\n-------\n")
    return (body if rule and len(head) < 1000 else text).strip() + "\n"


def read_books(folder: Path, held_out: bool) -> dict[str, str]:
    """Return name -> text of the training books, or of the held-out ones; Shakespeare is in neither."""
    names = [p for p in sorted(Path(folder).glob("*.txt")) if p.name not in NEVER and (p.name in HELD_OUT) == held_out]
    if not names:
        raise InputError(f"No {'held-out' if held_out else 'training'} text (*.txt) in {folder}.")
    return {path.stem: read_book(path) for path in names}


def fit_tokenizer(texts, vocab_size: int):
    """Return a transformers tokenizer: byte-level BPE of ``vocab_size`` entries that begins every text with <s>.

    Source: Sennrich et al. 2016 (arXiv 1508.07909), on bytes as in GPT-2 (Radford et al. 2019, section 2.2).
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=[BOS], initial_alphabet=alphabet, show_progress=False))
    bpe.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=BOS, clean_up_tokenization_spaces=False)


def encode(tokenizer, text: str) -> np.ndarray:
    """Return the token ids of a text, (n,), int64, without the leading <s>."""
    return np.asarray(tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)
