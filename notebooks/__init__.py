"""The notebooks, installed as workbench.notebooks so that `workbench lab` and `workbench app` find
them anywhere.
"""
