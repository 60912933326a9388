"""`mycc.load`: a package becomes a callable Model. Imports nothing heavy: a cold start is a few milliseconds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import InputError, LoadError
from .native import open_library
from .signature import Port, Signature, advice
from .state import State
from .tree import Arguments, plan_output

if TYPE_CHECKING:
    from .archive import PackageSource
    from .generation.embed import Embedder
    from .generation.speech import Transcript
    from .generation.texts import Generator, TextStream, TokenStream

__all__ = ["EntryPoint", "Model", "load"]


def load(
    path_or_bytes: PackageSource,
    threads: int | None = None,
    target: str | None = None,
    check: str = "quick",
    *,
    device: Any = None,
    launch: str | None = None,
    copy: bool = False,
) -> Model:
    """Loads a package. Its layout and the hashes of all members but the weights are checked before any code of it runs.
    What was checked is what runs: all but the weights is read into memory of the process first.

    Args:
        path_or_bytes: the package's path, or the package itself as bytes (kept, not copied, unless `copy`).
        threads: threads of a call, the caller's included; None: one per available core.
        target: one of the package's targets ("cpu:x86-64-v3"); None: the best that this machine runs.
        check: "quick", or "full" to check the hashes of the weights too (0.3 s per 400 MB and core).
        device: "cpu", "cuda", "cuda:1" or a torch.device; None: a GPU that the package has code for, else the CPU.
        launch: how a GPU's kernels are launched: "auto" (None), "direct" one by one, "graph" as CUDA graphs, "debug"
            one by one and waited for, so that a failure names its kernel.
        copy: False: large weights are pages of the file, which all processes share; who writes into the file or cuts it
            off changes them or ends the process (mycc replaces files as a whole). True: they are read into memory of
            this process, where nothing reaches them; with check="full" they are what the hashes say.

    Raises:
        LoadError: the file is missing, damaged, of an unknown version, or not for this machine; or it changed while it
            was read.
    """
    if check not in ("quick", "full"):
        raise LoadError(f"check has to be 'quick' or 'full', not {check!r}")
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise LoadError(f"threads has to be a number from 1, not {threads!r}", hint="None takes one per core.")
    library, full = open_library(), check == "full"
    where = None if device is None else str(device)
    if isinstance(path_or_bytes, bytes | bytearray | memoryview):
        native = library.load_memory(path_or_bytes, threads or 0, full, target, where, launch, copy)
        return _model(native, source=path_or_bytes)
    try:
        path = os.fsdecode(path_or_bytes)
    except TypeError:
        kind = type(path_or_bytes).__name__
        raise LoadError(f"a package is loaded from a path or from bytes, not from a {kind}") from None
    if "\0" in path:
        raise LoadError(f"cannot read {path!r}: a path has no NUL")
    try:
        return _model(library.load_file(path, threads or 0, full, target, where, launch, copy), path, path)
    except LoadError:
        _refuse_other_formats(path)
        raise


def _refuse_other_formats(path: str) -> None:
    """Raises LoadError for a file that is of another known format."""
    from .formats import refusal

    if (refused := refusal(path, package=True)) is not None:
        raise LoadError(refused[0], hint=refused[1]) from None


def _model(native: Any, path: str | None = None, source: Any = None) -> Model:
    """The loaded package; one that trains has more to it (training.py)."""
    model = Model(native, path, source)
    if "training" not in model.manifest:
        return model
    from .training import Training

    return Training(native, path, source)


def _warn_of_age(name: str) -> None:
    import warnings

    warnings.warn(
        f"{name} was compiled by an older mycc: whether its code fits its manifest can be checked in part only. "
        "Compile the model again.",
        stacklevel=4,
    )


def _handle(state: Any) -> Any:
    if not isinstance(state, State):
        raise InputError(f"state has to be what new_state() gives, not a {type(state).__name__}")
    return state.handle


class EntryPoint:
    """A function of a package: call it with the tensors that its `signature` shows.

    Takes numpy arrays, torch tensors or anything with DLPack, strided ones too, and returns the same kind in the
    structure of the original model's result. May be called by many threads at once.

    On a GPU, tensors of the device are read where they are, and the result is on the device too when one of them is;
    the call returns while the device works. It works in the order of torch's current stream, of the default stream, or
    of `stream=`: a CUDA stream of torch or cupy, or its address. Host arrays are copied there and the result back.

    An entry point that reads or changes buffers of the model works on the model's own state, or on `state=`, one of
    `Model.new_state()`. Arguments that the model writes to are changed.

    Random operators draw the numbers of `seed=`, a whole number; without it each call takes the model's next seed
    (`Model.seed`).

    Raises (on a call):
        InputError: arguments that do not fit the signature.
        RunError: the run itself failed: an index out of range, out of memory.
    """

    __slots__ = (
        "_arguments", "_build", "_in_place", "_index", "_native", "_plain", "_run", "_seeds", "_states", "_streams",
        "_symbol_rows", "signature",
    )  # fmt: skip

    def __init__(self, native: Any, index: int, row: dict[str, Any]) -> None:
        self.signature = Signature.from_manifest(row)
        self._native = native
        self._index = index
        self._run = native.run
        self._symbol_rows = row["symbols"]
        self._arguments = Arguments(row["in_tree"], [port.name for port in self.signature.inputs], row["name"])
        self._plain = self._arguments.plain
        # the words belong to the model where it has an argument of that name
        self._streams = native.device != "cpu" and not self._arguments.has("stream")
        self._seeds = not self._arguments.has("seed")
        self._states = "state" in row and not self._arguments.has("state")
        self._in_place = tuple(row.get(name, ()) for name in ("state", "writes", "changes"))
        self._build = plan_output(row["out_tree"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        stream = kwargs.pop("stream", None) if kwargs and self._streams else None
        seed = kwargs.pop("seed", None) if kwargs and self._seeds else None
        state = kwargs.pop("state", None) if kwargs and self._states else None
        own = None if state is None else _handle(state)
        try:
            if len(args) != self._plain or kwargs:
                return self._build(self._run(self._index, self._arguments.flatten(args, kwargs), stream, seed, own))
            return self._build(self._run(self._index, args, stream, seed, own))
        except InputError as error:
            tensors = self._arguments.flatten(args, kwargs)  # names an argument that is no tensor at all
            raise self._named(error, tensors) from None

    def _named(self, error: InputError, tensors: Sequence[Any]) -> InputError:
        """The error with the name of an input that the native side knows by its number only, and what helps."""
        inputs, text = self.signature.inputs, error.message
        if error.input is not None and error.input < len(inputs):
            text = inputs[error.input].name + error.finding.partition("\n  ")[0]
        return InputError(text, details=error.details, hint=error.hint or advice(self.signature, tensors))

    @property
    def name(self) -> str:
        """The entry point's name in the package."""
        return self.signature.name

    def run_flat(self, tensors: Sequence[Any], stream: Any = None, seed: int | None = None) -> list[Any]:
        """Runs on the tensors of the flattened inputs; returns the flat list of outputs."""
        try:
            outputs: list[Any] = self._run(self._index, tensors, stream, seed)
        except InputError as error:
            raise self._named(error, tensors) from None
        return outputs

    def all_outputs(self, manifest: Mapping[str, Any]) -> tuple[Port, ...]:
        """The outputs of `run_whole`."""
        _, writes, changes = self._in_place
        state = [Port(row["name"], row["dtype"], tuple(row["shape"])) for row in manifest.get("state", ())]
        return (*self.signature.outputs, *(self.signature.inputs[i] for i in writes), *(state[i] for i in changes))

    def run_whole(self, tensors: Sequence[Any], seed: int | None = None) -> list[Any]:
        """A call as a function of all that it reads, on a state of its own.

        Args:
            tensors: of the flattened inputs, then this entry point's share of the state ("state" of the manifest).
            seed: of random operators.

        Returns:
            The flat outputs, then the new values of the arguments that it writes to, and of the state that it changes.
        """
        slots, writes, changes = self._in_place
        count = len(self.signature.inputs)
        if not slots:
            return [*self.run_flat(tensors, seed=seed), *(tensors[i] for i in writes)]
        handle = self._native.new_state()
        for slot, tensor in zip(slots, tensors[count:], strict=True):
            self._native.state_write(handle, slot, tensor)
        outputs = self._run(self._index, tensors[:count], None, seed, handle)
        return [*outputs, *(tensors[i] for i in writes), *(self._native.state_read(handle, slot) for slot in changes)]

    @property
    def own_state(self) -> tuple[int, ...]:
        """The tensors of the model's state that a call reads, by number."""
        return tuple(self._in_place[0])

    @property
    def changed(self) -> tuple[bool, tuple[int, ...]]:
        """Whether a call changes the model's state, and the inputs that it writes to, by number."""
        _, writes, changes = self._in_place
        return bool(changes), tuple(writes)

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels (on a GPU: of the launches), in order of execution."""
        return list(self._native.kernels(self._index))

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The size symbols' values at these shapes of the flattened inputs."""
        return {
            row["name"]: (shapes[row["input"]][row["dim"]] - row["offset"]) // row["scale"] for row in self._symbol_rows
        }

    def profile(self, tensors: Sequence[Any], runs: int = 1) -> list[int]:
        """Nanoseconds of each of `kernels`, averaged over `runs` runs on flat inputs."""
        return list(self._native.profile(self._index, tensors, runs))

    def memory(self, tensors: Sequence[Any]) -> tuple[int, int]:
        """Bytes of the arena that these flat inputs need, and the largest sum of live bytes over the kernels."""
        arena, live = self._native.memory(self._index, tensors)
        return arena, live

    def __repr__(self) -> str:
        return f"<entry point {self.signature}>"


class Model(EntryPoint):
    """A loaded package. Calling it calls its first entry point; `entry(name)` gives the others.

    Attributes:
        signature: inputs, outputs and sizes of the first entry point.
        manifest: manifest.json as a dictionary.
        target: the target that was chosen, e.g. "cpu:x86-64-v3".
        device: where it runs: "cpu", "cuda:0".
        threads: threads of a call, the caller's included.
        path: the package's path; None when it was loaded from bytes.
    """

    __slots__ = (
        "__weakref__", "_embedder", "_generator", "_others", "_source", "_variants", "device", "manifest", "path",
        "target", "threads",
    )  # fmt: skip

    def __init__(self, native: Any, path: str | None = None, source: PackageSource | None = None) -> None:
        import json

        self.manifest: dict[str, Any] = json.loads(native.manifest)
        self.target: str = native.target
        self.device: str = native.device
        self.threads: int = native.threads
        self.path = path
        self._source = source
        self._generator: Generator | None = None
        self._embedder: Embedder | None = None
        if "contract" not in self.manifest:
            _warn_of_age(self.manifest["name"])
        rows = self.manifest["entry_points"]
        super().__init__(native, 0, rows[0])
        points = [(EntryPoint(native, index, row), row) for index, row in enumerate(rows) if index > 0]
        self._others = tuple(point for point, row in points if "variant_of" not in row)
        self._variants = tuple((point, row["variant_of"], row["fixed"]) for point, row in points if "variant_of" in row)

    @property
    def entries(self) -> dict[str, EntryPoint]:
        """All entry points by name, the first one (the model itself) included."""
        return {entry.name: entry for entry in (self, *self._others)}

    def entry(self, name: str) -> EntryPoint:
        """The entry point of this name, or one compiled for some sizes alone, such as forward_batch1."""
        entries = {point.name: point for point, _, _ in self._variants} | self.entries
        try:
            return entries[name]
        except KeyError:
            names = ", ".join(self.entries)
            raise InputError(f"the package has no entry point '{name}'", hint=f"It has: {names}.") from None

    def variant(self, entry: EntryPoint, sizes: Mapping[str, int]) -> EntryPoint:
        """The one that a call of `entry` at these sizes runs: compiled for them alone, or `entry` itself."""
        for point, general, fixed in self._variants:
            if general == entry.name and all(sizes.get(name) == size for name, size in fixed.items()):
                return point
        return entry

    @property
    def state(self) -> State:
        """The tensors that the model keeps from call to call, by name: `m.state["cache"]`, `m.state["count"] = 0`."""
        return State(self._native, self.manifest.get("state", ()))

    @state.setter
    def state(self, values: Mapping[str, Any]) -> None:
        self.state.update(values)

    def reset_state(self) -> None:
        """Back to the values that the buffers had when the model was compiled."""
        self.state.reset()

    def new_state(self) -> State:
        """Another state with the buffers' first values, for a caller of its own: `m(x, state=s)`."""
        return State(self._native, self.manifest.get("state", ()), self._native.new_state())

    # -- packages for text --------------------------------------------------------------------------------------------

    def generate(self, prompt: str | Sequence[int], *, draft: Any = None, **options: Any) -> TextStream:
        """The text that follows a prompt, piece by piece; the pieces joined are the text.

            for piece in m.generate("Once upon a time", max_new_tokens=100):
                print(piece, end="", flush=True)

        Args:
            prompt: a text, or numbers of tokens.
            draft: what guesses tokens, which the model checks several at a time: "lookup" (the text itself), or the
                loaded package of a smaller model. The tokens are the same; the package is compiled with draft_tokens.
            options: max_new_tokens, temperature (0: greedy), top_k, top_p, min_p, repetition_penalty, presence_penalty,
                frequency_penalty, logit_bias, seed, stop, stop_tokens, ignore_eos, logprobs, json_schema, grammar,
                regex (docs/generation.md); what is not given is as the model's generation_config.json says.

        Raises:
            InputError: the package was not compiled for text, the prompt is too long, or an option is wrong.
        """
        return self.generator.stream(prompt, options, draft)

    def generate_tokens(self, prompt: Sequence[int], *, draft: Any = None, **options: Any) -> TokenStream:
        """The numbers of the tokens that follow those of a prompt, as they are chosen; numpy is enough for it."""
        return self.generator.tokens(prompt, options, draft)

    def generate_batch(self, prompts: Sequence[str | Sequence[int]], *, draft: Any = None, **options: Any) -> list[str]:
        """The texts that follow several prompts: as many at once as the package was compiled for."""
        return self.generator.batch(prompts, options, draft)

    def chat(self, messages: Sequence[Mapping[str, Any]], *, draft: Any = None, **options: Any) -> TextStream:
        """The answer to a conversation, by the model's chat template: [{"role": "user", "content": "Hello"}]."""
        return self.generator.chat(messages, options, draft)

    def transcribe(
        self, audio: Any, language: str | None = None, task: str | None = None, **options: Any
    ) -> Transcript:
        """The text of speech, piece by piece, by a package for the task automatic-speech-recognition.

        Args:
            audio: samples[count] at the model's rate (16 kHz), floats from -1 to 1, int16 or int32; or features
                f32[bands, frames]; or the path of a WAV file. What is longer than the model's window (30 seconds) is
                written down window by window.
            language: the code of the language that is spoken, "en"; None: found out from the first window.
            task: "transcribe", or "translate" to English.
            options: as of generate.

        Raises:
            InputError: the package was not compiled for it, or an argument is wrong.
        """
        from .generation.speech import Transcriber

        if not isinstance(self.generator, Transcriber):
            raise InputError(
                "the package does not write down speech",
                hint="Compile a model's folder: mycc compile DIR --task automatic-speech-recognition --out speech.pkg",
            )
        return self.generator.transcribe(audio, language, task, options)

    def embed(self, texts: Sequence[str | Sequence[int]]) -> Any:
        """One vector for each text, f32[texts, size], by a package that was compiled for the task embedding.

        Texts that are longer than the package takes are cut.

        Raises:
            InputError: the package was not compiled for it.
        """
        return self.embedder.embed(texts)

    @property
    def embedder(self) -> Embedder:
        """What `embed` uses: the tokenizer, and how many tokens and texts a call takes."""
        if self._embedder is None:
            from .generation.embed import embedder_of

            self._embedder = embedder_of(self, self.manifest.get("task"), self._task_file)
        return self._embedder

    @property
    def generator(self) -> Generator:
        """What the calls above use: the tokenizer, the options, and the engine that runs texts."""
        if self._generator is None:
            from .generation.texts import generator_of

            self._generator = generator_of(self, self.manifest.get("task"), self._task_file)
        return self._generator

    def _task_file(self, name: str) -> bytes | None:
        """A file of the package's task, the one that was there when the package was loaded; None without it."""
        from .archive import TASK, Archive, sha256_hex

        row = self.manifest["members"].get(TASK + name)
        if row is None:
            return None
        if self._source is None:
            raise LoadError(f"{TASK + name} cannot be read: where the package came from is not known")
        data = bytes(Archive(self._source).read(TASK + name))
        if sha256_hex(data) != row["sha256"]:
            raise LoadError(f"{self.path}: {TASK + name} changed since the package was loaded", hint="Load it again.")
        return data

    # -- state and device ---------------------------------------------------------------------------------------------

    def seed(self, value: int) -> None:
        """The seed of the next call of any entry point that names none; the call after it takes the next number, and so
        on. A loaded model starts at 0."""
        self._native.seed(value)

    def to_device(self, array: Any) -> Any:
        """A copy of a host array where the model runs: on a GPU an array with DLPack and numpy(), which calls take
        without a copy."""
        return self._native.to_device(array)

    def synchronize(self) -> None:
        """Waits until all calls have ended on the GPU.

        Raises:
            RunError: a kernel has failed; its name is said.
        """
        self._native.synchronize()

    def _repr_html_(self) -> str:
        """What a notebook shows: signature, target, size, error."""
        from .inspect import card_html

        return card_html(self.manifest, self.path, f"{self.target} on {self.device}, threads {self.threads}")

    def __repr__(self) -> str:
        from .text import counted

        entries = "\n".join(str(entry.signature) for entry in self.entries.values())
        where = counted(self.threads, "thread") if self.device == "cpu" else self.device
        return f"<mycc model {self.manifest['name']} for {self.target}, {where}>\n{entries}"
