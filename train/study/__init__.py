"""Studies: arms, variants and twins listed in one TOML file, each run a process of its own.

file.py      the file, and what is wrong with it
runs.py      the runs it asks for, and which of them are done
grammar.py   what only the trainer's own parsers can check
conduct.py   starts the processes, some at a time, and reports (process.py: one of them; child.py: inside it)
progress.py  what a person sees meanwhile

Nothing here but grammar.py imports torch, so that a study that is done says so at once.
"""
