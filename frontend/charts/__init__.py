"""Which curves a job's page draws, one list per kind; the template and the script read the same."""

from frontend.charts.board import KIND_BOARDS, board_of

__all__ = ["KIND_BOARDS", "board_of"]
