#!/usr/bin/env python3
"""Makes the *.json files in this folder: excerpts of published vocabularies, strings, and the ids that
the reference library (`tokenizers`, with the pipeline of the model's published tokenizer.json) gives.

usage: make_excerpts.py NAME MODEL.gguf [STRINGS.inp] > NAME.json     (needs: pip install gguf tokenizers)

An excerpt holds only tokens that occur as a substring of some string here, with their merges: no other
token can come up while these strings are encoded, so the ids are those of the whole vocabulary.
STRINGS.inp: more strings, separated by lines "__ggml_vocab_test__"."""
import json
import random
import sys
import unicodedata

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers as pre

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"


def byte_level(use_regex):
    return pre.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(regex):
    return pre.Split(Regex(regex), "isolated")


QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
# The published class of DeepSeek's letters: the cased letters of Unicode 11 in these blocks.
DEEPSEEK_LETTERS = (
    "\u0041-\u005A\u0061-\u007A\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293"
    "\u0295-\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1"
    "\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD"
    "\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D"
    "\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC"
    "\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC"
    "\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"
    "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3"
    "\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06"
    "\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
    "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF"
    "\U0001E900-\U0001E943")
DEEPSEEK = [r"[\r\n]", r"\s?[" + DEEPSEEK_LETTERS + "]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$",
            "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
DIGITS = pre.Digits(individual_digits=True)
PIPELINES = {  # name: (normaliser, pre-tokeniser) of the byte-level vocabularies
    "gpt-2": (None, byte_level(True)),
    "smollm2": (None, pre.Sequence([DIGITS, byte_level(True)])),
    "starcoder": (None, pre.Sequence([DIGITS, byte_level(True)])),
    "qwen2.5-coder": (normalizers.NFC(), pre.Sequence([split(QWEN2), byte_level(False)])),
    "falcon": (None, pre.Sequence([pre.Punctuation("contiguous"), byte_level(True),
                                   pre.Digits(individual_digits=False), split("[0-9][0-9][0-9]")])),
    "deepseek-llm": (None, pre.Sequence([split(r) for r in DEEPSEEK] + [DIGITS, byte_level(False)])),
}

HAND_PICKED = [
    "", " ", "  ", "a", "a ", " a", "  a", "Hello world", "Hello, World!\n", "\t\ttabs\n\n\nlines\r\n\r\n end  ",
    "I'm, you're, WE'LL, they'D, it'\u017f", "1 12 123 1234 12345 3.14 \u00bd \u00b2 \u2167 \u0663\u0664",
    "def f(x):\n    return {x: [1, 2]}  # done\n", "x_y != z && ~a || $b^2 <= `c`", "iPhone HTTPServer camelCase",
    "e\u0301 \u00e9 a\u0308\u0323 \u1100\u1161\u11a8 \uac01", "\u4e2d\u6587\u5b57\u7b26 \u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f3fd", "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947",
    "\u2581\u2581x\u2581 y", "<s>user</s> <unk> <0x41> <|im_end|> <|endoftext|> <end_of_turn>", "\x00\x01\x04\x7f",
    "\ufffd \ufeff\u200b\u00a0\u3000\u180e\u0085\u2028x", " " * 40, " " * 100 + "end", "\n" * 33, "=" * 70,
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ied 4 \u00bd months", "\u0412\u044a\u043b\u0433\u0430\u0440\u0441\u043a\u0438",
    "\ufb01n \u00df \u0130 \u212a \u212b \u2126", "Stra\u00dfe, na\u00efve caf\u00e9", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22", "\u1ac6\u08f2 \U00010f4d\u05bd",
]
BITS = ["'s", "'T", "'ll", "'RE", "1", "12", "123", "\u00bd", ".", " ", "  ", "\n", "\r\n", "\t", " \n", SPACE, "<s>", "a", "B",
        "\u00e9", "e\u0301", "\u4e2d", "\u65e5\u672c", "\u1100", "\u1161", "\U0001f3fd", "\ufb01", "\u00df", "\u017f", "~", "$", "+", "<", ">", "_", "-",
        "\u2014", "\u201c", "\u3001", "\u3002", "def ", "return", "():", "//", "the", " of", "ing", "The", "\u0438\u0437", "\u0645\u0646"]


def strings(special, more):
    rnd = random.Random(7)
    out = HAND_PICKED + more
    for _ in range(120):
        out.append("".join(rnd.choice(BITS) for _ in range(rnd.randrange(1, 25))))
    for _ in range(20 if special else 0):
        out.append("".join(rnd.choice(special if rnd.random() < 0.5 else BITS) for _ in range(rnd.randrange(1, 8))))
    return list(dict.fromkeys(out))


def read(path):
    fields = GGUFReader(path).fields
    get = lambda key: fields[key].contents() if key in fields else None
    data = {"model": get("tokenizer.ggml.model"), "pre": get("tokenizer.ggml.pre"), "architecture": get("general.architecture"),
            "tokens": get("tokenizer.ggml.tokens"), "merges": get("tokenizer.ggml.merges") or [],
            "scores": get("tokenizer.ggml.scores"), "types": get("tokenizer.ggml.token_type")}
    for name, key in (("bos", "bos_token_id"), ("eos", "eos_token_id"), ("unk", "unknown_token_id"),
                      ("add_bos", "add_bos_token"), ("add_space_prefix", "add_space_prefix")):
        if get("tokenizer.ggml." + key) is not None:
            data[name] = get("tokenizer.ggml." + key)
    return data


def derived_merges(tokens, scores, types):
    """SentencePiece has no merge list: every split of a token into two, user-defined tokens first, then by score."""
    vocab = {t: i for i, t in enumerate(tokens)}
    merges = []
    for i, token in enumerate(tokens):
        if types[i] not in (NORMAL, USER_DEFINED):
            continue
        parts = [(vocab[token[:k]], vocab[token[k:]]) for k in range(1, len(token)) if token[:k] in vocab and token[k:] in vocab]
        order = (0, 0) if types[i] == USER_DEFINED else (1, -scores[i])
        merges += [(order, tokens[left], tokens[right]) for left, right in sorted(parts)]
    merges.sort(key=lambda m: m[0])
    return [(left, right) for _, left, right in merges]


def pipeline(name, data):
    tokens, types = list(data["tokens"]), data["types"]
    if data["model"] == "llama":
        if name == "gemma3":  # GGUF has plain spaces where the original has U+2581
            tokens = [t.replace(" ", SPACE) if y == USER_DEFINED else t for t, y in zip(tokens, types)]
        tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, derived_merges(tokens, data["scores"], types),
                                   unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        replace = normalizers.Replace(" ", SPACE)
        tok.normalizer = replace if name == "gemma3" else normalizers.Sequence([normalizers.Prepend(SPACE), replace])
    else:
        merges = [tuple(m.split(" ")) for m in data["merges"]]
        tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
        normalizer, tok.pre_tokenizer = PIPELINES[name]
        if normalizer:
            tok.normalizer = normalizer
    rstrip = lambda t: name == "phi-3" and t not in ("<unk>", "<s>", "<|endoftext|>")
    tok.add_tokens([AddedToken(t, special=False, normalized=False, rstrip=rstrip(t)) for t, y in zip(tokens, types) if y == USER_DEFINED])
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False, rstrip=rstrip(t)) for t, y in zip(tokens, types)
                            if y in (CONTROL, UNKNOWN)])
    return tok


def encode(tok, text, special):
    tok.encode_special_tokens = not special
    return tok.encode(text, add_special_tokens=False).ids


def byte_alphabet():
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in own]
    return {**{b: chr(b) for b in own}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def substrings(data, texts):
    alphabet = byte_alphabet()
    longest = max(len(t) for t in data["tokens"])
    found = set()
    for text in texts:
        for form in {text, unicodedata.normalize("NFC", text)}:
            if data["model"] == "llama":
                plain = form.replace(" ", SPACE)  # the space that is put before a text may come anywhere
                written = [form, plain] + [SPACE + plain[i:i + longest] for i in range(len(plain))]
            else:
                written = [form, "".join(alphabet[b] for b in form.encode())]
            for w in written:
                found.update(w[i:i + n] for i in range(len(w)) for n in range(1, min(longest, len(w) - i) + 1))
    return found


def main():
    name, path, *inp = sys.argv[1:]
    data = read(path)
    more = open(inp[0], encoding="utf-8", newline="").read().split("\n__ggml_vocab_test__\n") if inp else []
    special = [t for t, y in zip(data["tokens"], data["types"]) if y in (CONTROL, USER_DEFINED)]
    texts = strings(special[:40] + special[-10:], more)
    tok = pipeline(name, data)
    seen = substrings(data, texts)
    fixed = {data.get(k) for k in ("bos", "eos", "unk")}
    kept = [i for i, (t, y) in enumerate(zip(data["tokens"], data["types"]))
            if t in seen or t.replace(" ", SPACE) in seen or y == BYTE or i in fixed]
    names = {data["tokens"][i] for i in kept}
    out = {k: v for k, v in data.items() if k not in ("tokens", "merges", "scores", "types")}
    out["size"] = len(data["tokens"])
    out["tokens"] = [[i, data["tokens"][i], data["types"][i]] + ([data["scores"][i]] if data["scores"] else []) for i in kept]
    out["merges"] = [m for m in data["merges"] if all(p in names for p in m.split(" ")) and m.replace(" ", "") in names]
    out["cases"] = [{"text": t, "ids": encode(tok, t, False), "ids_special": encode(tok, t, True)} for t in texts]
    json.dump(out, sys.stdout, ensure_ascii=True, separators=(",", ":"))
    print()


main()
