"""How an experiment begins, changes and ends while a workspace is served.

The service follows ``[experiment]`` in `potstill.toml`, and the rules that it names, as it follows the registry. What
does not make sense, or cannot be read, leaves the experiment as it was. When the service starts, what does not make
sense is refused; what cannot be read is served without, until it can be. Decisions without an arm are part of no
experiment, so that nothing is ever counted in an arm that it was not decided by.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from potstill.experiments.config import ExperimentConfig, InvalidExperiment
from potstill.service.experiment import Experiment
from potstill.service.snapshot import Serving
from potstill.storage import child
from potstill.workspace import Workspace
from potstill.workspace.config import InvalidConfig, ServeMode, read_config
from potstill.workspace.experiment import control_of, rules_of
from potstill.workspace.workspace import CONFIG

_logger = logging.getLogger(__name__)


class Experiments:
    """The present experiment of a workspace, and how the next one is taken up.

    `now` may be read from any thread. `start` and `reload` read files, and are for one thread at a time.

    Args:
        workspace: whose configuration is followed.
        on_reload: told ``swapped``, ``refused`` or ``unavailable`` whenever something else was found.
    """

    def __init__(self, workspace: Workspace, on_reload: Callable[[str], None] = lambda _: None) -> None:
        self.now: Experiment | None = None
        self._workspace, self._on_reload = workspace, on_reload
        self._seen: tuple[ExperimentConfig | None, bytes | None] = (None, None)
        self._fault: str | None = None
        self._outcome = ""

    def state(self, mode: ServeMode) -> str | None:
        """What is to be known of it: ``running``, ``not started``, or what is wrong; None without an experiment."""
        if self._fault is not None:
            return f"{self._outcome}: {self._fault}"
        return None if self.now is None else self.now.state(mode)

    def start(self) -> None:
        """Take up the experiment; without it, for now, if storage is away.

        Raises:
            InvalidConfig: the configuration, or what it names, does not make sense.
        """
        try:
            self._take_up()
        except InvalidExperiment as error:
            raise InvalidConfig(f"{self._workspace.url}: {error}") from error
        except OSError as error:
            self._keep(error, "unavailable")

    def reload(self) -> None:
        """Take up what has changed, if it makes sense."""
        try:
            self._take_up()
        except (InvalidConfig, InvalidExperiment) as error:
            self._keep(error, "refused")
        except OSError as error:
            self._keep(error, "unavailable")

    def _take_up(self) -> None:
        config = self._configured()
        rules = None if config is None else rules_of(self._workspace, config)
        if (config, rules) != self._seen:
            self._swap(None if config is None else self._loaded(config, rules))
            self._seen = (config, rules)
        self._fault = None

    def _configured(self) -> ExperimentConfig | None:
        try:
            text = self._workspace.storage.read(CONFIG)
        except FileNotFoundError:
            return None
        return read_config(text, child(self._workspace.url, CONFIG)).experiment

    def _loaded(self, config: ExperimentConfig, rules: bytes | None) -> Experiment:
        return Experiment(config, self._workspace.problem, control_of(self._workspace, config, rules))

    def _swap(self, found: Experiment | None) -> None:
        self.now = found
        said = "the experiment is over" if found is None else f"experiment {found.config.name} is followed"
        _logger.info("%s: %s", self._workspace.problem.name, said)
        self._on_reload("swapped")

    def _keep(self, error: Exception, outcome: str) -> None:
        """Go on as before. The same fault is told once, however often it is met."""
        if str(error) != self._fault:
            self._fault, self._outcome = str(error), outcome
            _logger.warning("%s: the experiment stays as it was: %s", self._workspace.problem.name, error)
            self._on_reload(outcome)


def check_experiment(workspace: Workspace) -> None:
    """Refuse an experiment that does not make sense before anything is started; `InvalidConfig`."""
    if workspace.config.experiment is not None:
        Serving(workspace).start()  # it publishes the first version, which may be control
        Experiments(workspace).start()
