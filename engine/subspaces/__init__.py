"""Projections, piece by piece: ``engine.projections`` is the door.

params: what can be asked. typed: matrices that people type. drag: one vector on one line. projectors: planes and lines in
R^3, and what nearly parallel columns cost. reading: what the weights of a real head let through. orthogonalise: four ways to
orthonormal columns. conditioning: condition numbers of random and of trained matrices. fitting: least squares, PCA.
"""
