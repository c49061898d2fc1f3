"""Layout inference: unknowns and their equations, and a solver that knows no operator."""
