"""`doctor`: read every session, repair summaries, explain damage and standstill; check that sandboxed Python runs."""

from holdfast.cli.doctor.command import doctor_command

__all__ = ["doctor_command"]
