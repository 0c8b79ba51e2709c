"""libattn's C interface, as objects."""

from collections.abc import Sequence


def version() -> str:
    """The version of the C library, "0.1.0"."""

def problem_format(problem: str) -> str:
    """
    The canonical form of a problem string. Raises Error that names key, value and what is accepted.
    """

def problem_keys() -> dict:
    """Each key of problem strings with its default and its values."""

def context() -> Context:
    """
    The context of the process; made on first use, when it reads the environment.
    """

def forget_context() -> None:
    """Lets go of the context: the next call reads the environment anew."""

class Decision:
    """Which backend serves a problem, and why; made by Context.select."""

    @property
    def requested(self) -> str:
        """The wanted list in force."""

    @property
    def effective(self) -> object:
        """The winner's name, or None."""

    @property
    def device(self) -> object:
        """Its device."""

    @property
    def decided_by(self) -> str:
        """"call", "environment" or "automatic"."""

    @property
    def fallback(self) -> bool:
        """
        Whether it is not the first that was asked for, or below a refused better device.
        """

    @property
    def text(self) -> str:
        """The decision in one line."""

    @property
    def candidates(self) -> list:
        """Every candidate in the order asked, with kernels and reasons."""

    def open(self, threads: int = 0) -> Backend:
        """
        Opens the winner. threads counts on the CPU: 0 takes ATTN_THREADS, else one for each core.
        """

class Context:
    """Plugins, their backends, and the environment as it was read."""

    def select(self, problem: object, *, backend: str | None = None, device: str | None = None, strict: int = 0, ask_all: bool = False) -> Decision:
        """
        Chooses the backend that serves a problem, or all problems of a list (the layer classes of one model).

        backend: a wanted list over ATTN_BACKEND, as "cuda,auto". device: "cuda:1", "cpu"; None: any. strict: 1 refuses a fallback, 2 also generic kernels. ask_all: also those behind the winner. That none serves is an answer, not an error: `effective` is None, and `candidates` say why. Raises Error for a problem, list or device that cannot be.
        """

    def report(self) -> dict:
        """Directories, files and backends, as lists of dictionaries."""

    def variables(self) -> list:
        """Environment variables with value, origin and help."""

class Backend:
    """A backend that is open on its device."""

    @property
    def name(self) -> str:
        """"cpu/flash-attn\""""

    @property
    def device(self) -> str:
        """"cpu:0\""""

    def plan(self, problem: str) -> Plan:
        """
        Fixes kernels for a problem that gives max_seqs, max_q, max_kv and max_rows. Raises Error (ATTN_E_UNSUPPORTED) if the backend does not serve it.
        """

    def kv(self, k: object, v: object | None = None, *, k_scale: object | None = None, v_scale: object | None = None, head_dim_vo: int = 0) -> KV:
        """
        The cache of one layer over the caller's arrays, which it holds: k [pages, block, kv_heads, head_dim], v the same with head_dim_vo, any strides but for the last dimension; without v an MLA cache, whose values are the first head_dim_vo columns of k. Scales, of 8-bit types alone, are numbers, 'unit', f32 [kv_heads], or f32 [pages, block, kv_heads], which are written with the keys.
        """

    def kv_write(self, kv: KV, k: object, v: object | None, slot_mapping: object, *, k_rope: object | None = None, stream: int = 0) -> None:
        """
        Writes token i of k and v [tokens, kv_heads, dim] to slot slot_mapping[i] = page * block + place; a negative slot is skipped. slot_mapping is i64. An MLA cache takes k alone, with v None, or in two parts: its first head_dim_vo columns as k, the others as k_rope.
        """

    def synchronize(self, stream: int = 0) -> None:
        """Waits until everything on the stream is done."""

    def graph(self, stream: int = 0) -> Graph:
        """
        A graph that captures `stream`; without it a stream of its own, where the backend has streams. Raises Error (ATTN_E_UNSUPPORTED) if it has none.
        """

    def builder(self, groups: Sequence[object], *, max_seqs: int, max_tokens: int, chunked: bool = True, steps: int = 1, problem: str = '', max_encoder_tokens: int = 0, cross: object | None = None) -> Builder:
        """
        A builder for steps of at most max_seqs sequences and max_tokens new tokens. groups: (tokens per block, most blocks of a sequence) or with a third number, a sliding window in tokens, for each cache group. A builder of the FlashInfer flavour is told a problem. max_encoder_tokens: most tokens of encoders in a step, for layers of type encoder and encoder_decoder; cross: the same pair as in groups for the cache of cross-attention.
        """

    def state(self, problems: Sequence[str], groups: Sequence[object], class_groups: Sequence[int] = [], *, cross: object | None = None, new_dtypes: Sequence[str] = [], max_capture_len: int = 0, steps: int = 1, capture_tokens: int = 1, capture_num_tokens: int = 0) -> State:
        """
        The state of a model: a problem with all maxima for each layer class, and the cache groups and the cross group of its builder. class_groups: the cache group of each class; without it all use the first. Layers of encoders and of cross-attention have none: 0. new_dtypes: of each class that reads a cache, the type of k and v, 'f32', 'f16' or 'bf16'; without it, or as '', that of q, or bf16 if q has 8 bits. Of graphs: max_capture_len, most tokens of a sequence, 0 for the least max_kv; capture_tokens, most query tokens of a sequence in decodes; capture_num_tokens, those of all in any mix. steps: whose copies may be under way at once.
        """

    def layer(self, problem: str, *, scale: float, class_index: int = 0, group: int = 0, alibi_slopes: object | None = None, sinks: object | None = None) -> Layer:
        """
        A layer of class number class_index of the states that it runs with. It holds alibi_slopes and sinks.
        """

def torch_threads() -> int:
    """
    What `stream` is for work on a CPU by the threads that torch computes with (those of OpenMP), so that the two do not compete for processors; 0 if torch is not loaded or has no such threads.
    """

class KV:
    """The cache of one layer; made by Backend.kv."""

    @property
    def pages(self) -> int:
        """Pages that the arrays hold."""

    @property
    def block(self) -> int:
        """Tokens of a page."""

class Step:
    """
    The schedule of one step, prepared once and read by the run of every layer; made by Plan.step.
    """

    def prepare(self, q_offsets: object, kv_lens: object | None = None, *, num_tokens: int, max_q: int, max_kv: int, table: object | None = None, pages: int = 0, kv_offsets: object | None = None, csr_indptr: object | None = None, csr_indices: object | None = None, q_positions: object | None = None, seq_causal: object | None = None, cascade: bool = False, stream: int = 0) -> None:
        """
        Plans a step of n sequences. Arrays are i32 in the backend's memory and are held until the next prepare: q_offsets [n + 1], kv_lens [n] (keys of each, those of this step included), table [n, width] of pages with any row stride, kv_offsets and csr_indptr [n + 1]; seq_causal is u8 [n]. max_q and max_kv are upper bounds. In a graph they hold for all launches, each of which reads the arrays as they are by then. Raises Error that names array, index and value.
        """

class Plan:
    """The kernels of one layer class; made by Backend.plan."""

    def step(self) -> Step:
        """A schedule of its own, for steps that overlap those of another."""

    def run(self, step: Step, q: object, out: object, *, scale: float, kv: KV | None = None, k: object | None = None, v: object | None = None, lse: object | None = None, mask: object | None = None, alibi_slopes: object | None = None, sinks: object | None = None, q_rope: object | None = None, q_scale: object | None = None, k_scale: object | None = None, v_scale: object | None = None, out_scale: object | None = None, stream: int = 0) -> None:
        """
        Runs one layer of a prepared step: q [tokens, heads, head_dim] to out [tokens, heads, head_dim_vo], over `kv`, or k and v [tokens, kv_heads, dim], or both, as the problem's kv_source says. lse is f32 [tokens, heads]; mask [1 or n, 1 or heads, rows, columns]; alibi_slopes f32 [heads]; sinks f32 or bf16 [heads]; of MLA q may have its first head_dim_vo columns, and q_rope [tokens, heads, the others]. q_scale and out_scale of 8-bit q and out, and k_scale and v_scale of k and v, are numbers, or f32 [heads] or [tokens, heads] where the problem says so. Other threads of Python run meanwhile. On a GPU the call does not wait for the result.
        """

    @property
    def problem(self) -> str:
        """Its canonical problem string."""

    @property
    def kernels(self) -> object:
        """Names of the kernels."""

    @property
    def graph_level(self) -> int:
        """What of a capture it supports: enum attn_graph_level."""

class Graph:
    """
    Work of a stream that is captured once and launched as a whole; made by Backend.graph. Inside `with graph:` State.begin_forward, Layer.forward, Step.prepare, Plan.run and Backend.kv_write on its stream are kept instead of done. A launch makes them again with what their arrays hold by then, but for masks of bools, which stay as they were. The graph holds these arrays; an exception inside leaves it empty. One thread at a time, while its plans and states run nowhere else.
    """

    @property
    def stream(self) -> int:
        """The stream that it captures, for `stream` of other calls."""

    def __enter__(self) -> Graph:
        """Begins the capture."""

    def __exit__(self, type: object | None, value: object | None, traceback: object | None) -> None:
        """Ends the capture. Raises Error if a call could not be kept."""

    def launch(self, stream: int = 0) -> None:
        """
        Does everything in order, on any stream that is not captured. Plans and allocates nothing.
        """

def attention(q: object, k: object, v: object, out: object | None, *, causal: bool = False, align_start: bool = False, scale: float | None = None, window_left: int | None = None, window_right: int | None = None, softcap: float = 0.0, sinks: object | None = None, mask: object | None = None, alibi_slopes: object | None = None, alibi: str = 'key', kv_lens: object | None = None, lse: object | None = None, backend: str | None = None, stream: int | None = None) -> object:
    """
    q [batch, heads, n, dim] over k and v [batch, kv_heads, m, dim] to out [batch, heads, n, dim_vo], which is written and returned; None: a new one of q's library. kv_lens is i32 [batch] in host memory: keys of each sequence that count. Plans are kept by shape. Without stream it is the one on which the library of q works now.
    """

def torch_attention(q: object, k: object, v: object, any_heads: bool, mask: object | None, causal: bool, align_start: bool, scale: float | None, window_left: int = -1, window_right: int = -1, softcap: float = 0.0, sinks: object | None = None, alibi_slopes: object | None = None, kv_lens: object | None = None) -> object:
    """
    attention() of plain tensors of torch to a new one, laid out as libattn.torch says. None, and nothing is done, if the call needs more: tracers, modes and autocast, gradients, other dimensions than four, and heads that differ without any_heads.
    """

def varlen_attention(q: object, k: object, v: object, out: object, q_offsets: object, kv_offsets: object, kv_lens: object | None, max_q: int, max_kv: int, *, causal: bool = False, align_start: bool = False, scale: float | None = None, window_left: int | None = None, window_right: int | None = None, softcap: float = 0.0, sinks: object | None = None, alibi_slopes: object | None = None, alibi: str = 'key', lse: object | None = None, backend: str | None = None, stream: int | None = None) -> None:
    """
    Sequences one behind the other: q [tokens, heads, dim], k and v [keys, kv_heads, dim], out [tokens, heads, dim_vo], which is written. q_offsets and kv_offsets are i32 [n + 1], kv_lens i32 [n], on their device; without kv_lens (on a CPU) a sequence has all keys up to the next one.
    """

def torch_varlen_attention(q: object, k: object, v: object, q_offsets: object, kv_offsets: object, max_q: int, max_kv: int, causal: bool, scale: float | None, window_left: int, window_right: int, softcap: float, sinks: object | None, alibi_slopes: object | None) -> object:
    """
    varlen_attention() of plain tensors of torch in host memory to a new one; alibi is 'distance'. None, and nothing is done, if the call needs more, as of torch_attention().
    """

def plans() -> list:
    """
    Backend, device, problem and kernels of each plan that attention calls have made.
    """

def forget_plans() -> None:
    """Frees plans and backends of attention calls."""

def fields() -> list:
    """Names of the fields of a step's metadata; those of vLLM 0.6.4."""

class Metadata:
    """
    What a step is, for kernels; lives until its builder's next reset or build. That of a captured size is State.get_capture_metadata's.
    """

    def __getitem__(self, field: str) -> object: ...

    def get(self, field: str, group: int = 0) -> object:
        """
        A field by name: a number, the host's copy of an array as a list, or None where it has no value there. `group` is the cache group of fields that exist once for each.
        """

    def advance(self, queries: int, *, accepted: object | None = None, pad: int = 0, prefill_to_decode: bool = False, sampled: object | None = None, tokens: object | None = None, positions: object | None = None, stream: int = 0) -> None:
        """
        Makes a step of decodes the next one in place, without a builder: each of its `queries` sequences keeps its number of query tokens, and grows by one token or by its count of `accepted` ones. The blocks of new tokens are in the lists already, or Builder.set_row adds them. pad: sequences of a graph's padding; prefill_to_decode: prompts become decodes of one token. sampled: the next tokens, int64, which FlashInfer wants and `tokens` gets; positions: gets those of the tokens. Then State.begin_forward takes the metadata again. Raises Error that names what is not as it has to be, and then changes nothing.
        """

class Builder:
    """
    Makes the metadata of steps from sequences and their blocks. One thread at a time.
    """

    def reset(self) -> None:
        """Begins a step without sequences; the metadata of the step before ends."""

    def add(self, context_len: int, query_len: int, blocks: object | None, *, prompt: bool, row: object | None = None, unchanged: int = 0, computed: int = 0, encoder_len: int = 0, cross: object | None = None, cross_unchanged: int = 0) -> None:
        """
        Adds a sequence, prompts before decodes: tokens whose keys are in the cache, new tokens, and the blocks of both, as a list for each cache group or one list for the only group; None where nothing is cached, as in steps of encoder_only layers. unchanged: leading blocks that are the same as at the row's last add; computed: leading blocks that a prefix cache had. encoder_len: tokens of the encoder's sequence, of decodes too; cross: the blocks of their keys for cross-attention, of which the first cross_unchanged are the same as at the row's last add. Raises Error that names what cannot be, and then adds nothing.
        """

    def set_row(self, row: int, first: int, blocks: Sequence[int], group: int = 0) -> None:
        """
        Changes blocks of a row of the block tables, from number `first` of its list on, which they may lengthen: of a sequence of a step that was built, too, as for the tokens of the steps it advances to. group: the cache group; behind the last one, cross-attention's.
        """

    def build(self, stream: int = 0, *, graph: bool = False, pad: int = 0, host_only: bool = False) -> Metadata:
        """
        Ends the step and gives its metadata. graph: for a captured graph, padded by `pad` sequences; host_only: it is copied by State.prepare alone.
        """

class State:
    """
    Plans and memory of a model: one plan for each layer class, and what graphs are captured with. Made by Backend.state.
    """

    def begin_forward(self, metadata: Metadata, stream: int = 0) -> None:
        """
        Plans the step for all classes. Of a capture's metadata the device plans for what the buffers hold, and the call can be captured.
        """

    def begin_capture(self, max_batch: int, stream: int = 0) -> None:
        """
        Begins to capture graphs of at most max_batch sequences: allocates their buffers. Then, for sizes from large to small: get_capture_metadata, clone, and with the clone begin_forward and the layers, once to warm up and once inside `with Backend.graph()`; and end_capture at the end. Each step is then built with graph=True, put into the buffers by prepare, and done by Graph.launch.
        """

    def get_capture_metadata(self, batch: int, *, encoder_decoder: bool = False, tokens: int = 1, num_tokens: int = 0, stream: int = 0) -> Metadata:
        """
        Metadata of a graph of one size, over the buffers: decodes of `batch` sequences of `tokens` query tokens each, with encoder_decoder those of cross-attention; or with num_tokens, query tokens of all sequences, any mix of prompts and decodes. It lives until the next one or end_capture, and with a clone as long as that.
        """

    def clone(self, batch: int) -> State:
        """
        The state of the size whose metadata was taken last, with which its layers are captured.
        """

    def end_capture(self) -> None:
        """Ends the capture; clones stay."""

    def prepare(self, metadata: Metadata, stream: int = 0) -> None:
        """
        Puts a graph's step into the buffers of the clone of its size, for the launch of its graph. A clone or its graph has to live. Raises Error that names what the graph cannot be launched for.
        """

class Layer:
    """One attention layer of a model; made by Backend.layer."""

    def forward(self, state: State, q: object, out: object, *, kv: KV | None = None, k: object | None = None, v: object | None = None, lse: object | None = None, mask: object | None = None, q_rope: object | None = None, k_rope: object | None = None, q_scale: object | None = None, k_scale: object | None = None, v_scale: object | None = None, out_scale: object | None = None, stream: int = 0) -> None:
        """
        One layer of the step that `state` has begun: writes k and v [tokens, kv_heads, dim] to the step's slots of `kv`, and attends with q [tokens, heads, head_dim] to out [tokens, heads, head_dim_vo], which is written. Tokens are in the order of the step: prompts, then decodes. All four of an encoder's layer, and k and v of cross-attention, have the encoder's tokens of the step's prompts; an encoder's writes no cache, and decodes of cross-attention, whose keys are in `kv`, take no k and v. lse is f32 [tokens, heads], written if the problem has lse=1. mask is [1 or sequences, 1 or heads, 1 or query tokens, columns] as the longest sequence of the step or its graph needs it: a column for each key with span=full, else for each of its query tokens. An MLA cache takes k without v; q and k may then have their first head_dim_vo columns, and q_rope and k_rope the others. q_scale and out_scale of 8-bit q and out, and k_scale and v_scale of 8-bit k and v that kv_source=new reads, are numbers, or f32 [heads] or [tokens, heads] where the problem says so; caches have their own.
        """
