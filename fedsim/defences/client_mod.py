"""The defences of devices as one mod for anybody's Flower app, on named arrays."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message
from flwr.clientapp.typing import ClientAppCallable
from pydantic import TypeAdapter, ValidationError

from fedsim.core.buffers import BUFFERS
from fedsim.core.errors import UserError
from fedsim.defences import Defences
from fedsim.defences.central_dp import CentralDp
from fedsim.defences.defence import Defence
from fedsim.tap.layout import Arrays, Layout, aligned, arrays_in
from fedsim.trusted.replies import UNSENDABLE

RUN_CONFIG_KEY = "defences"

_EXPECTED = "[{ name = 'clipping', norm = 1.0 }]"


@dataclass(frozen=True)
class DefenceMod:
    """A client mod that changes the update of a device before it leaves.

    The defences are those of a scenario, in the order in which they change the update: a list of tables such
    as `{"name": "clipping", "norm": 1.0}`. By default they stand in the app's run config, as text:
    `defences = "[{ name = 'clipping', norm = 1.0 }, { name = 'noise', sd = 0.1 }]"`. The server hands out the
    run config, so a client that does not trust it gives the list here.

    All float arrays together are the update. Arrays that no defence changes are sent back as they came:
    integers, and arrays whose names match a pattern in `skip` (running statistics of BatchNorm). Noise comes
    from the operating system's randomness.
    """

    defences: Sequence[Mapping[str, Any]] | None = None
    skip: Sequence[str] = BUFFERS
    _own: tuple[Defence, ...] | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if isinstance(self.skip, str):
            raise UserError(f"DefenceMod(skip={self.skip!r}): expected a list of patterns")
        if self.defences is not None:
            object.__setattr__(self, "_own", _checked(list(self.defences), "DefenceMod(defences=…)"))

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Change the reply to a call for training; nothing of it leaves if that is not possible."""
        if message.metadata.message_type.partition(".")[0] != "train":
            return call_next(message, context)
        try:
            defences = self._own if self._own is not None else configured(context.run_config)
        except UserError as error:
            return Message(Error(UNSENDABLE, str(error)), reply_to=message)
        # Before the app is called: it may train in place.
        sent = arrays_in(message.content)
        reply = call_next(message, context)
        if not reply.has_error():
            layout, trained = Layout.of(sent, None, self.skip), aligned(reply.content, sent)
            if reason := layout.misfit(trained):
                return Message(
                    Error(UNSENDABLE, f"the update cannot be defended: {reason}"), reply_to=message
                )
            update = (layout.row(trained) - layout.row(sent)).astype(np.float32)
            rng = np.random.default_rng()
            for defence in defences:
                update = defence.on_update(update, rng)
            _put_back(reply, layout.moved(sent, update))
        return reply


defence_mod = DefenceMod()
"""The mod with the defences of the app's run config."""


def configured(run_config: Mapping[str, Any]) -> tuple[Defence, ...]:
    """The defences of a run config; a `UserError` if there is no list of them, or a wrong one."""
    where = f"run config, {RUN_CONFIG_KEY}"
    text = run_config.get(RUN_CONFIG_KEY)
    if not isinstance(text, str):
        raise UserError(f'{where}: is {text!r}, expected a text such as "{_EXPECTED}", or "[]" for none')
    try:
        content = tomllib.loads(f"{RUN_CONFIG_KEY} = {text}")[RUN_CONFIG_KEY]
    except tomllib.TOMLDecodeError:
        raise UserError(f"{where}: {text!r} is not a list in TOML, such as {_EXPECTED}") from None
    return _checked(content, where)


def _checked(content: object, where: str) -> tuple[Defence, ...]:
    try:
        defences: tuple[Defence, ...] = TypeAdapter(Defences).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{where}: {place or 'all'}: {first['msg']}") from None
    if any(isinstance(defence, CentralDp) for defence in defences):
        raise UserError(
            f"{where}: central_dp needs a trusted place before the server, which an app does not have; "
            "expected clipping here, and Flower's DifferentialPrivacyClientSideFixedClipping on the server"
        )
    return defences


def _put_back(reply: Message, model: Arrays) -> None:
    """Replace the arrays of a reply by those of the model; arrays that were never sent stay on the device."""
    keys = [key for key, record in reply.content.items() if isinstance(record, ArrayRecord)]
    sent_keys = {key for key, _ in model}
    # As in `aligned`: a model may come back under another key.
    sent_as = dict(zip(keys, sent_keys, strict=True)) if len(keys) == len(sent_keys) == 1 else {}
    for key in keys:
        names = {name: (sent_as.get(key, key), name) for name in reply.content[key]}
        reply.content[key] = ArrayRecord(
            {name: Array(model[place]) for name, place in names.items() if place in model}
        )
