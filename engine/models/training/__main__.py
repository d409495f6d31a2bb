"""Train the bundled model, or go on with it; ``engine.models.training.export`` then writes what is shipped."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from engine.models.training.loop import Recipe, train
from engine.models.training.text import encode, fit_tokenizer, read_books


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.models.training", description=__doc__)
    parser.add_argument("--text", type=Path, required=True, help="folder of plain text files")
    parser.add_argument("--work", type=Path, required=True, help="folder for the state to resume from")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    options = parser.parse_args()
    recipe = Recipe(steps=options.steps, seed=options.seed)
    books = read_books(options.text, held_out=False)
    tokenizer = fit_tokenizer(books.values(), recipe.vocab_size)
    join = lambda texts: encode(tokenizer, "\n\n".join(texts.values()))  # noqa: E731
    held_out = read_books(options.text, held_out=True)
    tokenizer.save_pretrained(options.work / "tokenizer")
    (options.work / "recipe.json").write_text(json.dumps(asdict(recipe)))
    train(recipe, join(books), join(held_out), options.work)


if __name__ == "__main__":
    main()
