"""The list of charts of each kind of job."""

from frontend.charts.evaluation import EVALUATION, ROLLOUT
from frontend.charts.model import Board
from frontend.charts.rl import RL
from frontend.charts.sft import SFT

KIND_BOARDS: dict[str, Board] = {"sft": SFT, "rl": RL, "evaluation": EVALUATION, "rollout": ROLLOUT}


def board_of(kind: str) -> Board:
    """The charts of a kind. Raises KeyError for one this console does not know."""
    return KIND_BOARDS[kind]
