"""How Fable, the bundled language model, is made: text, batches, training, snapshots, model card.

    python -m engine.models.training --text FOLDER --work WORK --out assets/models/fable

trains it from a folder of plain text files; run it again to go on where it stopped.
"""
