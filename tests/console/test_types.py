"""The types of the console name no field that the API does not have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.machine.records import AGENT_RECORDS
from holdfast.core.records import KERNEL_RECORDS
from holdfast.serve.http.endpoints import ENDPOINTS
from holdfast.serve.http.openapi import openapi_document

LIB = Path(__file__).parents[2] / "web" / "src" / "lib"
TYPES = (LIB / "types.ts").read_text() + (LIB / "evaluation_types.ts").read_text()

SCHEMAS: dict[str, Any] = openapi_document(ENDPOINTS)["components"]["schemas"]

NAMES = {
    "Agent": "AgentReport",
    "AnsweredQuery": "DecidedReport",
    "AnswerReport": "AnswerOutcome",
    "CaseGroup": "CaseGroup",
    "ComparedArms": "ComparedArms",
    "ComparedRow": "ComparedRow",
    "ComparedSession": "ComparedSession",
    "ComparedStep": "ComparedStep",
    "Comparison": "ComparisonReport",
    "ConversationPage": "ConversationPage",
    "CostRow": "CostRow",
    "CostsReport": "CostsReport",
    "Counts": "CountsReport",
    "Divergence": "DivergenceReport",
    "DoctorReport": "DoctorReport",
    "Draft": "Draft",
    "EvaluationArm": "EvaluationArm",
    "EvaluationCase": "EvaluationCase",
    "EvaluationCases": "EvaluationCases",
    "EvaluationCell": "EvaluationCell",
    "EvaluationFigures": "EvaluationFigures",
    "EvaluationOverview": "EvaluationOverview",
    "EvaluationPair": "EvaluationPair",
    "EvaluationsPage": "EvaluationsPage",
    "FailureGroup": "FailureGroup",
    "ForkPoint": "ForkPoint",
    "Frame": "ViewFrame",
    "Item": "Item",
    "CardReport": "CardReport",
    "LinkedQuery": "LinkedQuestion",
    "Me": "PrincipalReport",
    "Message": "ViewMessage",
    "ModelUsage": "ModelUsage",
    "Observation": "Observation",
    "PastItem": "PastItem",
    "PastItemsPage": "PastItemsPage",
    "Policy": "Policy",
    "ReplayReport": "ReplayReport",
    "Rule": "Rule",
    "Server": "ServerReport",
    "SessionRow": "SessionRow",
    "SessionsPage": "SessionsPage",
    "StrategyScore": "StrategyScore",
    "StrategyScores": "StrategyScoresReport",
    "Summary": "Summary",
    "TokenUsage": "TokenUsage",
    "Tool": "ToolReport",
    "Tree": "TreeReport",
    "TreeNode": "TreeNode",
    "TurnRow": "TurnRow",
    "TurnsPage": "TurnsPage",
    "UsageReport": "UsageReport",
    "WaitingQuery": "WaitingReport",
    "Worker": "WorkerRow",
    "WorkersReport": "WorkersReport",
}
"""Types of the console, and what the API calls them."""


@pytest.mark.parametrize("name", NAMES)
def test_a_type_of_the_console_has_only_fields_of_the_api(name: str) -> None:
    found = re.search(rf"export interface {name}\b[^{{]*{{\n(.*?)\n}}", TYPES, re.DOTALL)
    assert found is not None, f"the console has no type {name}"
    fields = set(re.findall(r"^  (\w+)\??:", found.group(1), re.MULTILINE))
    assert fields - set(SCHEMAS[NAMES[name]]["properties"]) == set()


def test_the_journal_has_a_name_for_every_record() -> None:
    source = (LIB / "journal.ts").read_text()
    names = source.split("const RECORD_NAMES", 1)[1].split("};", 1)[0]
    named = set(re.findall(r"^  (\w+): \{", names, re.MULTILINE))
    tags = {each.__struct_config__.tag for each in (*KERNEL_RECORDS, *AGENT_RECORDS)}
    assert tags - named <= {"answered", "attempted"}, "those are shown with the question that they belong to"
