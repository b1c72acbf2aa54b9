"""Contains all the data models used in inputs/outputs"""

from .answer import Answer
from .answer_header import AnswerHeader
from .answers import Answers
from .problem import Problem
from .question import Question
from .question_header import QuestionHeader
from .questions import Questions
from .settled import Settled
from .settled_status import SettledStatus
from .settlements import Settlements
from .spendings import Spendings
from .spent import Spent
from .user import User

__all__ = (
    "Answer",
    "AnswerHeader",
    "Answers",
    "Problem",
    "Question",
    "QuestionHeader",
    "Questions",
    "Settled",
    "SettledStatus",
    "Settlements",
    "Spendings",
    "Spent",
    "User",
)
