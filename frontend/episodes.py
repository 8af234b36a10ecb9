"""How the console calls the ways in which an episode ends."""

CAUSES = {
    "success": "Success",
    "max_steps": "Step limit",
    "terminated": "Ended unsolved",
    "error": "Error",
    "solved_at_reset": "Solved at reset",
}
_TONES = {"success": "succeeded", "error": "cancelling", "solved_at_reset": "cancelled"}


def outcome_word(outcome: str) -> str:
    return CAUSES.get(outcome, outcome)


def outcome_tone(outcome: str) -> str:
    """The colour class: ``succeeded``, ``failed``, or a shade for what is neither."""
    return _TONES.get(outcome, "failed")
