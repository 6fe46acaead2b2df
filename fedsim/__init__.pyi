# Types of the lazily imported names; `__init__.py` imports none of them, because their homes are above it.
from fedsim.core.errors import RunFailedError as RunFailedError
from fedsim.core.errors import UserError as UserError
from fedsim.defences.client_mod import DefenceMod as DefenceMod
from fedsim.defences.client_mod import defence_mod as defence_mod
from fedsim.secure.client import SecureMod as SecureMod
from fedsim.secure.client import answer_secure_aggregation as answer_secure_aggregation
from fedsim.secure.client import secure_mod as secure_mod
from fedsim.secure.strategy import SecureAggregation as SecureAggregation
from fedsim.tap import ExposureMonitor as ExposureMonitor
from fedsim.tap import Tap as Tap
from scenarios.audit.api import audit as audit
from scenarios.disaggregation import disaggregate as disaggregate
from scenarios.evaluate.api import evaluate as evaluate
from scenarios.forecast.api import forecast as forecast
from scenarios.reproduction.api import reproduce as reproduce
from scenarios.run.api import attack as attack
from scenarios.run.api import load_run as load_run
from scenarios.run.api import run as run
from scenarios.run.scenario import Scenario as Scenario
from scenarios.run.scenario import load_scenario as load_scenario
from scenarios.sweep.api import sweep as sweep

__all__: list[str]
_HOMES: dict[str, str]
