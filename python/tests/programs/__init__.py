"""Random small programs, each run by plain torch and managed: the same bits, or an error by name.

`program.py` says what a program is, `draw.py` draws one of a seed, `model.py` and `script.py` run it, `runner.py`
compares, `shrink.py` leaves out what a fault does not need, `crowd.py` runs many. From python/tests:

    python -m programs 17                 what program 17 is, and how it ends in each mode
    python -m programs 17 --shrink        the least of it that ends so
    python -m programs "Program(...)"     the same of a program by its text
    python -m programs --count 300        how many differ, by class
"""
