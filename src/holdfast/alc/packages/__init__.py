"""Managing Lua packages: install, link, remove, check, repair, and the files of a project that name them.

Finding packages is `holdfast.alc.lua.packages`; nothing here is needed to run one.
"""
