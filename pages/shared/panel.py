"""A page's controls and its link: one name per field of the lab's parameter object."""

from collections.abc import Iterable, Mapping
from dataclasses import fields

import streamlit as st
from streamlit.errors import StreamlitAPIException
from streamlit.runtime.scriptrunner import get_script_run_ctx

from engine.errors import LabError
from pages.shared.controls import Choice, Control, Menu, settle, within
from pages.shared.link import quoted

RESERVED = ("present",)
TAB = "tab"
_NOTES, _MENDED = "_notes", "_mended"
_MISSED, _AGAIN, _TRIED, _BEHIND = "_missed", "_again", "_tried", "_behind"


class Panel:
    """The controls of a page. Names must equal the fields of the parameter class; checked when the page is imported.

    ``view`` holds what a link says of the page that no engine function reads, such as the colour of a map: control and default.
    """

    def __init__(self, params_class: type, tabs: tuple[str, ...] = (), view: Mapping[str, tuple[Control, object]] | None = None, **controls: Control):
        names = [f.name for f in fields(params_class)]
        if sorted(names) != sorted(controls):
            raise TypeError(f"Controls {sorted(controls)} are not the fields {sorted(names)} of {params_class.__name__}.")
        self.params_class, self.tabs = params_class, tabs
        default = params_class()
        self.controls: dict[str, Control] = {name: controls[name] for name in names}
        self.defaults = {name: control.clamp(getattr(default, name)) for name, control in self.controls.items()}
        view = dict(view or {}) | ({TAB: (Choice("Tab", dict.fromkeys(tabs, "")), tabs[0])} if tabs else {})
        self.views = tuple(view)
        self.controls |= {name: control for name, (control, _) in view.items()}
        self.defaults |= {name: default for name, (_, default) in view.items()}
        self.unmoved = {name: control.write(self.defaults[name]) for name, control in self.controls.items()}

    def settle(self, query: Mapping[str, str], **limits) -> tuple[dict[str, str], list[str]]:
        """Return the corrected query and a sentence for each correction; pure.

        ``limits`` are upper limits that depend on the chosen model. ``settle(write(p)) == (write(p), [])``.
        """
        good, notes = {}, []
        for name, raw in query.items():
            if name in RESERVED:
                good[name] = raw
            elif name in self.controls:
                good[name], note = settle(self.limited(name, limits), raw, self.defaults[name])
                notes += [note] if note else []
            else:
                notes.append(f"The link holds {name[:40]!r}, which is not a setting of this page; it is ignored.")
        return good, notes

    def limited(self, name: str, limits: Mapping[str, int]) -> Control:
        """Return a control with the limit that the chosen model sets, if any."""
        return within(self.controls[name], limits.get(name))

    def write(self, params, **view) -> dict[str, str]:
        """Return every field as link parameters, defaults included, so that a link outlives a change of defaults."""
        values = {f.name: getattr(params, f.name) for f in fields(params)} | {name: self.defaults[name] for name in self.views} | view
        return {name: self.controls[name].write(value) for name, value in values.items()}

    def view(self, **limits) -> dict[str, object]:
        """Return what the page stands at beside its parameters: the ``view`` controls and the open tab."""
        asked = {name: raw for name, raw in st.query_params.to_dict().items() if name in self.views} | self._state(self.views)
        good, _ = self.settle(asked, **limits)
        return {name: self.controls[name].parse(good[name]) if name in good else self.defaults[name] for name in self.views}

    def read(self, **limits):
        """Return the parameters that the page stands at; a value that is not acceptable is mended, said, and run again."""
        for name, value in st.session_state.pop(_AGAIN, {}).items():
            st.session_state[name] = value
        self._say_each_once()
        state = {} if _going_back() else self._state()
        query = st.query_params.to_dict()
        good, notes = self.settle(query | state, **limits)
        if notes:
            self._mend(good, state, query)
            _say_and_rerun(notes)
        try:
            return self.params(good, **limits)
        except LabError as error:
            self.refuse(self._culprit(good), str(error))

    def _say_each_once(self) -> None:
        """Mend a link that says a setting more than once: Streamlit's controls would take one of its values, and the page another.

        A control that has been drawn holds its own value, whatever the link says.
        """
        fresh = [name for name in self.controls if name not in st.session_state and len(st.query_params.get_all(name)) > 1]
        repeated = {name: st.query_params[name] for name in fresh}
        if repeated:
            for name, value in repeated.items():
                self._put(name, value)
            _say_and_rerun([f"The link holds {quoted(name)} more than once; using the last, {quoted(value)}." for name, value in repeated.items()])

    def _culprit(self, good: Mapping[str, str]) -> str:
        """Return the setting that the engine refuses on its own; of a combination, one that can be put back."""
        asked = [f.name for f in fields(self.params_class) if f.name in good]
        for name in asked:
            try:
                self.params({name: good[name]})
            except LabError:
                return name
        return next(name for name in asked if good[name] != self.unmoved[name])

    def refuse(self, name: str, reason: str) -> None:
        """Put one control back to its default, say why, and run the page again: for a value that only the engine can judge."""
        control = self.controls[name]
        default = self.unmoved[name]
        state, query = self._state(), st.query_params.to_dict()
        self._mend({**query, **state, name: default}, state, query)
        _say_and_rerun([f"{reason} Using {quoted(control.options[default] if isinstance(control, Menu) else default)}."])

    def params(self, settled: Mapping[str, str], **limits):
        """Return the parameter object of a settled link; what it leaves out is at its default."""
        values = {name: control.parse(settled[name]) if name in settled else self.defaults[name] for name, control in self.controls.items()}
        values |= {name: self.limited(name, limits).clamp(values[name]) for name in limits}
        return self.params_class(**{f.name: values[f.name] for f in fields(self.params_class)})

    def draw(self, *names: str, **limits) -> None:
        """Draw some of the controls where the page stands now; ``read`` has their values."""
        for name in names:
            control, expected = self.limited(name, limits), st.session_state.get(name)
            if by_hand(control):
                control.draw(name, control.parse(settle(control, self._held(name), self.defaults[name])[0]), self.pick)
                continue
            drawn = control.draw(name, control.clamp(self.defaults[name]))
            if name in st.session_state and expected not in (None, drawn) and not _going_back():
                st.session_state.setdefault(_MISSED, {})[name] = expected

    def is_moved(self, *names: str) -> bool:
        """Return whether one of these controls stands elsewhere than at its default, or the link names it."""
        query = st.query_params.to_dict()
        return any(name in query or st.session_state.get(name, self.defaults[name]) != self.defaults[name] for name in names)

    def _held(self, name: str) -> str:
        """Return what the link holds of a control, or its default."""
        return st.query_params.get(name, self.unmoved[name])

    def behind(self) -> dict[str, tuple[str | None, str]]:
        """Return what the address says wrongly since ``agree`` set it right: name -> (what it says, where the control stands)."""
        return {name: (said, meant) for name, (said, meant) in st.session_state.get(_BEHIND, {}).items() if said != meant}

    def agree(self) -> None:
        """Run the page once more if a control did not take the value it was set to.

        A slider whose limits changed with the model is a new one to Streamlit, which takes its value from an address that
        is not up to date yet.
        """
        missed, tried = st.session_state.pop(_MISSED, None), st.session_state.pop(_TRIED, None)
        st.session_state[_BEHIND] = {name: (st.query_params.get(name), self.controls[name].write(value)) for name, value in (tried or {}).items()}
        if missed and missed != tried:
            st.session_state[_AGAIN] = st.session_state[_TRIED] = missed
            st.session_state[_MENDED] = True
            st.rerun()

    def _state(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """Return what the controls, or some of them, stand at, as far as they have been drawn in this session."""
        drawn = [name for name in names or self.controls if not by_hand(self.controls[name])]
        held = {name: st.session_state.get(name) for name in drawn}
        return {name: self.controls[name].write(value) for name, value in held.items() if value is not None}

    def _mend(self, good: dict, state: dict, query: dict) -> None:
        """Put corrected values where they came from: drawn controls hold theirs, the rest is in the address."""
        for name, raw in (query | state).items():
            if name in state and good[name] != raw:
                st.session_state[name] = self.controls[name].parse(good[name])
            elif name not in state and name not in good:
                del st.query_params[name]
            elif name not in state and good[name] != raw:
                self._put(name, good[name])

    def _put(self, name: str, raw: str) -> None:
        """Write a setting that is not drawn yet into the address; one that Streamlit still holds for a control, into that."""
        try:
            st.query_params[name] = raw
        except StreamlitAPIException:
            self._set(name, raw)

    def offers(self, link: Mapping[str, str]) -> bool:
        """Return whether every setting of a link may be asked for here: a hosted page does not offer every model."""
        return not self.settle(link)[1]

    def apply(self, link: Mapping[str, str]) -> None:
        """Set every control to a preset's link, the others to their defaults; for callbacks, before the page runs."""
        good, _ = self.settle(link)
        for name, control in self.controls.items():
            if name not in good and by_hand(control):
                st.query_params.pop(name, None)
            else:
                self._set(name, good.get(name, self.unmoved[name]))

    def pick(self, values: Mapping[str, object]) -> None:
        """Set the controls that a click on a figure, or a hand's release, names; anything else in it is dropped."""
        good, _ = self.settle({name: str(v) for name, v in values.items() if name in self.controls})
        for name, raw in good.items():
            self._set(name, raw)

    def _set(self, name: str, raw: str) -> None:
        """Put a settled text where a control keeps its value."""
        if by_hand(self.controls[name]):
            st.query_params[name] = raw
        else:
            st.session_state[name] = self.controls[name].parse(raw)


def by_hand(control: Control) -> bool:
    """Return whether a component of the page, and no widget of Streamlit, sets this control."""
    return getattr(control, "by_hand", False)


def _say_and_rerun(notes: list[str]) -> None:
    earlier = st.session_state.get(_NOTES, []) if st.session_state.get(_MENDED) else []
    st.session_state[_NOTES] = earlier + notes
    st.session_state[_MENDED] = True
    st.rerun()


def _going_back() -> bool:
    """Return whether the visitor used the browser's back or forward button: then the link wins over the controls."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def run_again() -> None:
    """Run the page again for a reason of its own, such as a picture that grows: what was said about the link stays."""
    st.session_state[_MENDED] = True
    st.rerun()


def fresh_notes() -> list[str]:
    """Return what was mended since the visitor last did something."""
    if not st.session_state.pop(_MENDED, False):
        st.session_state[_NOTES] = []
    return st.session_state.setdefault(_NOTES, [])
