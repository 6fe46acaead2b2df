"""Plug-ins for fedsim: a defence and a release policy."""
