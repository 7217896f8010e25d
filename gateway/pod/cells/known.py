"""What is known about modules, builtins, magics and shell commands: which of them can't touch a GPU, and what they do with what they get.

Tables and look-ups alone. Whatever stands in no table counts as able to touch a GPU, so a name belongs here only when its package
starts no foreign program, imports nothing by a name it is given, and reaches no accelerator by itself. Nothing is imported to find out.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Optional


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Modules, by their first component. What they return is a value of their own: code that gets one plants nothing in it.
_VALUES = _words("""
    abc argparse base64 binascii bz2 calendar cmath colorsys configparser csv datetime decimal difflib dis email errno filecmp fileinput
    fnmatch fractions ftplib getpass gettext glob gzip hashlib hmac html http imaplib io ipaddress keyword linecache locale logging lzma
    math mimetypes numbers os pathlib platform pprint quopri re reprlib secrets shlex shutil signal smtplib socket ssl stat statistics
    string stringprep struct sys tabnanny tarfile tempfile textwrap time token tokenize tracemalloc unicodedata urllib uuid warnings wave
    xml zipfile zlib zoneinfo atexit __future__ timeit multiprocessing importlib inspect pickle IPython
    numpy pandas scipy matplotlib mpl_toolkits sklearn seaborn plotly altair PIL pyarrow h5py openpyxl xlrd xlsxwriter requests httpx
    urllib3 certifi bs4 lxml html5lib markdown dateutil pytz tzdata tqdm psutil tabulate packaging colorama rich
""")
# As above, but what they return is made of plain lists, dicts and objects, in which code may plant anything.
_PLAIN = _words("ast bisect copy graphlib json heapq random sched selectors select sqlite3 tomllib toml tomli yaml traceback joblib")
# They keep, call or wrap what they are given.
_MIXING = _words("""
    array asyncio collections concurrent contextlib contextvars dataclasses enum functools itertools operator queue threading types typing
    typing_extensions weakref attr attrs pydantic ipywidgets traitlets toolz more_itertools six
""")
# Only so much of these is safe; the second word says whether the rest could rebind any name.
GUARDED: dict[str, tuple[frozenset[str], bool]] = {
    "sys": (
        _words("""argv byteorder copyright executable exit flags float_info float_repr_style getdefaultencoding getfilesystemencoding
        getrecursionlimit getrefcount getsizeof hash_info hexversion implementation int_info intern maxsize maxunicode path platform prefix
        base_prefix setrecursionlimit stderr stdin stdout stdlib_module_names version version_info __stdout__ __stderr__"""),
        True,
    ),
    "inspect": (_words("cleandoc getdoc getfile getsource getsourcefile getsourcelines isclass isfunction ismethod ismodule"), True),
    "IPython": (_words("display version_info __version__"), True),
    "importlib": (_words("metadata resources"), False),
    "pickle": (_words("dump dumps HIGHEST_PROTOCOL DEFAULT_PROTOCOL PickleError PicklingError"), False),
    "joblib": (_words("dump delayed cpu_count"), False),
    "yaml": (_words("safe_load safe_load_all safe_dump safe_dump_all dump SafeLoader SafeDumper YAMLError"), False),
    "timeit": (_words("default_timer"), False),
    "multiprocessing": (_words("cpu_count"), False),
}
_FOREIGN = _words("""
    concurrent.futures.process logging.config numpy.distutils tqdm.keras tqdm.dask xml.sax
""")
# These make vetted packages use a GPU behind their users' backs, or put hooks around every cell.
ACCELERATORS = _words("cudf.pandas cuml.accel cuml.experimental.accel sklearnex daal4py fireducks legate cunumeric cupynumeric nx_cugraph")
# Importing these gives hold of every name and hook there is.
OMNIPOTENT = _words("builtins __main__ IPython ipykernel code codeop bdb pdb")
# Installed frameworks: large, and not edited while a notebook runs (what %autoreload watches for).
FRAMEWORKS = _words("""
    torch torchvision torchaudio tensorflow keras jax jaxlib flax optax haiku transformers datasets accelerate peft timm diffusers
    lightning pytorch_lightning fastai cupy cudf cuml numba xgboost lightgbm catboost spacy sentence_transformers einops vllm triton
    bitsandbytes deepspeed wandb mlflow tensorboard torchmetrics albumentations cv2 dask ray polars networkx subprocess gc
""")

# Attributes that lead out of what can be followed: to other modules, namespaces, frames, foreign programs, strings that run.
REFLECTION = _words("""
    __globals__ __builtins__ __builtin__ __import__ __subclasses__ __dict__ __code__ __closure__ __getattribute__ __loader__ __spec__
    __reduce__ __reduce_ex__ __self__ __wrapped__ f_globals f_locals f_builtins f_back gi_frame cr_frame ag_frame tb_frame tb_next
    _getframe currentframe walk_stack walk_tb exc_info last_value last_traceback get_objects get_referrers getclosurevars getmembers
    modules get_ipython embed embed_kernel start_ipython start_kernel InteractiveShell ZMQInteractiveShell get_type_hints
    FunctionType LambdaType CodeType MethodType user_ns builtins __main__ all_tasks _all_widgets _instances make_parser
""")
FOREIGN_CODE = _words("""
    os sys _os _sys subprocess ctypes importlib _pickle pickle multiprocessing runpy pty ctypeslib f2py distutils cuda inspect gc
    system popen Popen startfile posix_spawn posix_spawnp fork forkpty register_at_fork
    execl execle execlp execlpe execv execve execvp execvpe spawnl spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe
    create_subprocess_exec create_subprocess_shell subprocess_exec subprocess_shell ProcessPoolExecutor process_map
    import_module find_spec load_module exec_module run_module run_path dictConfig fileConfig enable_load_extension load_extension
    attrgetter methodcaller get_field vformat read_pickle read_hdf HDFStore unsafe_eval CDLL LoadLibrary load_library
""")

# Builtins. DOMINION gives hold of every name; FORMS are safe only as calls that the walker understands.
EXACT = _words("len int float bool isinstance issubclass callable id hash ord print hasattr")  # return a plain value whatever they get
ATOMS = _words("str repr format ascii chr bin hex oct range bytes complex slice round divmod pow input")
_QUIET = _words("""
    abs all any bytearray dict dir enumerate frozenset list memoryview object open property reversed set staticmethod
    classmethod sum super tuple type zip display aiter __build_class__
""")
CALLING = _words("map filter next iter anext sorted max min")  # they run code of what they get
FORMS = _words("getattr setattr delattr eval exec compile globals locals vars __import__ help get_ipython")
DOMINION = _words("eval exec globals locals get_ipython __builtins__ __builtin__ __loader__ __spec__ breakpoint")
_CONSTANTS = _words("""
    NotImplemented Ellipsis __class__ __name__ __doc__ __file__ __debug__ __package__ __annotations__ __vsc_ipynb_file__
    __session__ In _i _ii _iii _ih _dh
""")
_EXCEPTIONS = _words("""
    ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BlockingIOError BrokenPipeError BufferError BytesWarning
    ChildProcessError ConnectionAbortedError ConnectionError ConnectionRefusedError ConnectionResetError DeprecationWarning EOFError
    EncodingWarning EnvironmentError Exception ExceptionGroup FileExistsError FileNotFoundError FloatingPointError FutureWarning
    GeneratorExit IOError ImportError ImportWarning IndentationError IndexError InterruptedError IsADirectoryError KeyError
    KeyboardInterrupt LookupError MemoryError ModuleNotFoundError NameError NotADirectoryError NotImplementedError OSError OverflowError
    PendingDeprecationWarning PermissionError ProcessLookupError RecursionError ReferenceError ResourceWarning RuntimeError RuntimeWarning
    StopAsyncIteration StopIteration SyntaxError SyntaxWarning SystemError SystemExit TabError TimeoutError TypeError UnboundLocalError
    UnicodeDecodeError UnicodeEncodeError UnicodeError UnicodeTranslateError UnicodeWarning UserWarning ValueError Warning ZeroDivisionError
""")
BUILTINS = EXACT | ATOMS | _QUIET | CALLING | _CONSTANTS | _EXCEPTIONS
INERT_BASES = _words("object dict list set frozenset tuple str int float bytes bytearray complex") | _EXCEPTIONS
INERT_LIBRARY_BASES = _words("ABC NamedTuple TypedDict Protocol")
INERT_DECORATORS = _words("""
    property staticmethod classmethod abstractmethod cached_property lru_cache cache wraps contextmanager asynccontextmanager dataclass
    overload total_ordering final override setter getter deleter
""")

# Functions of libraries that keep a callback for later, or change what they are given.
_KEEPS = re.compile(r"register|set_|install|signal$|captureWarnings|basicConfig|seterrcall|showwarning|setprofile|settrace|finalize|hook")
CHANGES = _words("""
    heappush heappushpop heapreplace insort insort_left insort_right shuffle copyto put place putmask put_along_axis fill_diagonal setitem
    deepcopy update_wrapper
""")
# Functions whose arrays and numbers are new: no view of what they were given.
FRESH = _words("""
    sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh exp exp2 expm1 log log2 log10 log1p sqrt cbrt square power abs absolute sign
    floor ceil rint round clip mean sum prod std var median percentile quantile cumsum cumprod max min argmax argmin argsort sort unique
    dot matmul tensordot einsum linspace arange zeros ones empty full eye identity zeros_like ones_like empty_like full_like array
    histogram bincount digitize interp polyfit polyval gradient diff cov corrcoef where isnan isfinite isin allclose concatenate hstack
    vstack stack tile repeat meshgrid sqrt hypot deg2rad rad2deg crosstab to_datetime to_numeric get_dummies date_range cut qcut
    train_test_split make_blobs make_moons make_classification make_regression accuracy_score confusion_matrix mean_squared_error
""")
PLANTS = _words("""
    append appendleft extend extendleft insert add update setdefault push put put_nowait fill itemset __setitem__ __setattr__ __iadd__
    set_value addHandler addFilter send set assign_coords
""")
ATOM_METHODS = _words("""
    strip lstrip rstrip lower upper title capitalize casefold swapcase replace join startswith endswith encode decode count find rfind index
    rindex format isdigit isalpha isalnum isspace isupper islower isidentifier zfill center ljust rjust expandtabs translate removeprefix
    removesuffix hex bit_length to_bytes is_integer as_integer_ratio conjugate
""")
LIST_METHODS = _words("""
    tolist to_list to_dict to_records items split splitlines partition rpartition rsplit json readlines groups groupdict
""")

# Functions of modules (not methods) that run a test suite with its plug-ins, or a string.
RUNNERS = _words("test runstring rundocs measure")
SAFE_BACKENDS = _words("matplotlib agg Agg inline threading loky svg pdf ps plotly")

_DUNDER = re.compile("|".join(re.escape(word) for word in sorted(REFLECTION - {"__main__"}) if word.startswith("__")))
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_HISTORY = re.compile(r"_{1,3}$|_\d+$|_oh$|Out$")
_INPUTS = re.compile(r"_i\d+$")


def root(module: str) -> str:
    return module.partition(".")[0]


def vetted(module: str) -> bool:
    """Whether importing ``module`` and using it as intended can't touch a GPU."""
    top = root(module)
    if top == "IPython":
        return module == top or module.startswith(("IPython.display", "IPython.core.display", "IPython.lib.display"))
    if top not in _VALUES and top not in _PLAIN and top not in _MIXING:
        return False
    if any(module == foreign or module.startswith(foreign + ".") for foreign in _FOREIGN):
        return False
    below = module.split(".")[1:]
    if below and top in GUARDED and below[0] not in GUARDED[top][0]:
        return False
    return not any(part in FOREIGN_CODE or part in REFLECTION for part in below)


def forbidden(attribute: str, module: Optional[str] = None) -> Optional[bool]:
    """None where an attribute may be used (of ``module``, if it is one of a module); else whether it could rebind any name."""
    if attribute in REFLECTION:
        return True
    if attribute in FOREIGN_CODE:
        return None if (module, attribute) == ("platform", "system") else False
    return False if module is not None and attribute in RUNNERS else None


def guarded(module: str, attribute: str) -> Optional[bool]:
    """None where ``module.attribute`` may be used; else whether it could rebind any name."""
    if module not in GUARDED:
        return None
    allowed, dominion = GUARDED[module]
    return None if attribute in allowed else dominion


def makes_values(module: str) -> bool:
    """What ``module`` returns is a value of its own kind (an array, a frame, a figure)."""
    return module in _VALUES


def mixes(module: str, function: str) -> bool:
    """A call of ``module``'s ``function`` may run, keep or change its arguments."""
    return module in _MIXING or function in CHANGES


def dominates(module: Optional[str], attribute: Optional[str]) -> bool:
    """Whether ``attribute`` of the guarded ``module`` (None: the module itself) could rebind any name."""
    return module in GUARDED and GUARDED[module][1] and (attribute is None or attribute not in GUARDED[module][0])


@lru_cache(maxsize=4096)
def keeps(function: str) -> bool:
    return _KEEPS.match(function) is not None


def history(name: str) -> bool:
    """IPython's names for what cells have displayed."""
    return name[0] in "_O" and _HISTORY.match(name) is not None


def builtin(name: str) -> bool:
    """A name that is there without being bound, and harmless by itself."""
    return name in BUILTINS or _INPUTS.match(name) is not None


def identifiers(text: str) -> list[str]:
    """The names in an expression that stands in a string."""
    return _IDENTIFIER.findall(text)


def reflects(text: str) -> Optional[str]:
    """The word in a string constant with which format strings and look-ups by name leave what can be followed."""
    if "__" not in text and "plotting.backend" not in text and "module://" not in text:
        return None
    found = _DUNDER.search(text)
    if found:
        return found.group()
    return "plotting.backend" if "plotting.backend" in text else "module://" if "module://" in text else None


# The shell: commands that only look or move files about, and their harmless options where they have others.
_ANY = re.compile(r".*")
_COMMANDS = dict.fromkeys(
    _words("""ls pwd echo cat head tail wc df du free date whoami hostname uname which mkdir rmdir touch cp mv rm ln stat file id uptime
    nproc lscpu lsblk ps sort uniq grep egrep zcat cut tr tree md5sum sha1sum sha256sum unzip gunzip gzip printf true false sleep diff
    basename dirname realpath readlink printenv seq chmod cd nl tac column"""),
    _ANY,
)
_COMMANDS["nvidia-smi"] = re.compile(r"-L|-q|-i|\d+|--query-[\w-]+=[\w.,-]+|--format=[\w,-]+|topo|-m|--list-gpus|GPU-[\w-]+")
_COMMANDS["wget"] = _COMMANDS["curl"] = re.compile(r"-[qncOLsSfPo]+|--no-check-certificate|--location|--silent|--quiet|[^-].*")
_COMMANDS["pip"] = re.compile(r"list|show|freeze|--version|[\w.-]+")
_RUNS = re.compile(r"--(compress-program|rsh-command|to-command|use-compress-program)")  # options that start programs
_SHELL_SYNTAX = re.compile(r"""[;<>`$(){}\\\n"'*?~#!]|(?<!&)&(?!&)""")
_HARMLESS_SYNTAX = re.compile(r"""["'*?~]|2>\s?(/dev/null|&1)|>\s?/dev/null""")


def shell(command: str) -> bool:
    """Whether a shell command is known not to touch a GPU: plain commands of the table, perhaps joined by | and &&."""
    command = _HARMLESS_SYNTAX.sub(" ", command.strip())
    if not command or command.startswith("#"):
        return True
    if _SHELL_SYNTAX.search(command):
        return False
    return all(_command(part.split()) for part in re.split(r"\|\||&&|\|", command))


def _command(words: list[str]) -> bool:
    if not words or words[0] not in _COMMANDS or any(_RUNS.match(word) for word in words):
        return False
    if words[0] == "pip" and (len(words) < 2 or words[1] not in ("list", "show", "freeze", "--version")):
        return False
    return all(_COMMANDS[words[0]].fullmatch(word) for word in words[1:])


# Magics.
LINE_MAGICS = _words("""
    pwd cd less more who who_ls env set_env precision xmode colors history hist lsmagic magic quickref autosave bookmark dhist pushd popd
    dirs connect_info notebook automagic burst gpu load_dotenv dotenv subshell logstop logstate
""")
ALIASES = {**dict.fromkeys(_words("ls ll lf lk ldir lx"), "ls"), **{name: name for name in _words("cat mkdir rmdir rm cp mv pip")}}
HELP = _words("pinfo pinfo2 pdoc psource pfile pdef")
OPAQUE = _words("whos xdel reset reset_selective tb tensorboard load loadpy pastebin save logstart conda matplotlib load_ext config")
RUNNING = _words("run pylab alias alias_magic macro store rerun edit ed debug pdb gui code_wrap rehashx")  # other code, or more of it later
TIMING = _words("time timeit prun memit mprun lprun")
RENDERED = _words("writefile file html HTML svg SVG latex markdown javascript js")
SHELLS = _words("bash sh ! sx system")
PROGRAMS = _words("script python python2 python3 pypy perl ruby")
EXTENSIONS = _words("""
    autoreload gateway.magics dotenv jupyter_black nb_black lab_black watermark tensorboard storemagic line_profiler memory_profiler
""")
BACKENDS = re.compile(r"(inline|notebook|nbagg|widget|ipympl|agg|svg|pdf|ps|qt[56]?|tk|osx|gtk[34]?|wx|auto|--list|-l)?$")
