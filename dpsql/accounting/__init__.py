"""Accounting: events, conversions, composition, calibration, budgets: mathematics on public parameters."""

from dpsql.accounting.accuracy import expected_absolute_error, noise_band, standard_deviation
from dpsql.accounting.budget import Budget, Charge, Charges, Guarantee, charge_for, charges_of, fits, total_guarantee
from dpsql.accounting.calibration import CALIBRATIONS, MECHANISMS, Calibration, calibrate
from dpsql.accounting.checks import ACCOUNTANTS
from dpsql.accounting.composition import (
    advanced_epsilon,
    advanced_epsilon_each,
    pure_delta,
    pure_epsilon,
    pure_epsilon_each,
)
from dpsql.accounting.events import (
    NEIGHBORS,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    RangeEvent,
    SelectionEvent,
    ThresholdEvent,
    event_from_json,
    sensitivities,
)
from dpsql.accounting.gaussian import effective_variance, gaussian_delta, gaussian_epsilon, gaussian_mu
from dpsql.accounting.left import Remaining, Shortfall, remaining, share_used, shortfall
from dpsql.accounting.rules import rho_limit, selection_delta, selection_share
from dpsql.accounting.zcdp import rho_of_pure, zcdp_delta, zcdp_epsilon, zcdp_rho

__all__ = [
    "ACCOUNTANTS",
    "CALIBRATIONS",
    "MECHANISMS",
    "NEIGHBORS",
    "Budget",
    "Calibration",
    "Charge",
    "Charges",
    "Event",
    "GaussianEvent",
    "Guarantee",
    "LaplaceEvent",
    "PureEvent",
    "RangeEvent",
    "Remaining",
    "SelectionEvent",
    "Shortfall",
    "ThresholdEvent",
    "advanced_epsilon",
    "advanced_epsilon_each",
    "calibrate",
    "charge_for",
    "charges_of",
    "effective_variance",
    "event_from_json",
    "expected_absolute_error",
    "noise_band",
    "fits",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "pure_delta",
    "pure_epsilon",
    "pure_epsilon_each",
    "remaining",
    "rho_limit",
    "rho_of_pure",
    "selection_delta",
    "selection_share",
    "sensitivities",
    "share_used",
    "shortfall",
    "standard_deviation",
    "total_guarantee",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_rho",
]
