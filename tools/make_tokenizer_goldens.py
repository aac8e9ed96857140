#!/usr/bin/env python3
"""Writes tests/data/tokenizers/json: small tokenizers of every kind and what they do to hard texts.

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.1
    venv/bin/python tools/make_tokenizer_goldens.py [FOLDER]

Each NAME/tokenizer.json is trained here on a few sentences by the reference library;
NAME/goldens.jsonl has one line for each text: `ids` with special tokens read as such, `plain` with
them as text (left out where the library makes special tokens of plain text), `decoded` from ids
without special tokens.
The first line says what the library puts around a text. Beside the folder, sentencepiece/NAME has
models of that library with its own ids.
"""

import base64
import io
import json
import os
import random
import re
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FOLDER = os.path.join(ROOT, "tests", "data", "tokenizers", "json")
SPACE = "\u2581"

CORPUS = [
    "The quick brown fox jumps over the lazy dog. The dog sleeps, and the fox runs away.",
    "def add(a, b):\n    return a + b\n\nclass Point:\n    def __init__(self, x, y):\n   "
    "     self.x = x",
    "In 2024 there were 12345 people, 3.14 of whom didn't know; they'll say: \"It's fine!\"",
    "Der schnelle braune Fuchs springt \u00fcber den faulen Hund. Stra\u00dfe, gr\u00f6"
    "\u00dfer, M\u00fcnchen.",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002\u6211\u4eec\u53bb\u516c\u56ed\u6563\u6b65"
    "\u3002 \u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3067\u3059\u3002",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u041a\u0430\u043a \u0434"
    "\u0435\u043b\u0430?  \u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627"
    "\u0644\u0645",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5 \ud558\ub098. caf\u00e9 na\u00efve cafe\u0301 r"
    "\u00e9sum\u00e9 \u0928\u092e\u0938\u094d\u0924\u0947",
    "user assistant system tool function call the of and to in is that for it as with on be at by",
]

TEXTS = [
    "",
    " ",
    "  ",
    "a",
    " a",
    "a ",
    "  a  b  ",
    "Hello world",
    "Hello, World!\n",
    "\n\n\n",
    "\t\ttabs\r\n\r\n end  ",
    "The quick brown fox",
    "the THE The tHE",
    "I'm you're WE'LL they'D it'\u017f don't can't 's 't",
    "1 12 123 1234 12345 1234567 3.14 \u00bd \u00b2 \u2167 \u0663\u0664",
    "def f(x):\n    return {x: [1, 2]}  # done\n",
    "x_y != z && ~a || $b^2 <= `c` ``quoted'' <a> [b]",
    "camelCase HTTPServer iPhone12Pro",
    "e\u0301 \u00e9 a\u0308\u0323 \u1100\u1161\u11a8 \uac01 \u1ea1\u0301 \u0130\u0131",
    "\u4e2d\u6587\u5b57\u7b26abc\u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4 \u4eca\u5929\u5929\u6c14",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f3fd \u270c"
    "\U0001f3ff\ufe0f",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d"
    "\u0924\u0947 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22",
    "\u2581\u2581x\u2581 y \u2581",
    "<s>user</s> <unk> <0x41> [CLS] [SEP]",
    "<|end|>x <|end|> y<|end|>",
    "  <|left|>  a<|right|>  b word xwordx word.",
    "\x00\x01\x04\x7f\x1f\x8f",
    "\ufffd \ufeff\u200b\u00a0\u3000\u180e\u0085\u2028x\u2029",
    " " * 33 + "x",
    "a" * 70,
    "=" * 40,
    "ab" * 30,
    "\ufb01n \u00df \u212a \u212b \u2126 \uff21\uff22 \u3392 \ufdfa \u2460 \u33ff \u1e9b\u0323",
    "Stra\u00dfe \u00dcBER \u00c9COLE \u0391\u03a3 \u0410\u0411\u0412",
    "Normalized NORMALIZED normalized",
    "\u0e01\u0e33 \u0c95\u0ccd\u0cb7 \u0b95\u0bcd\u0bb7\u0bca",
    "\u24b6\u24d0 a\u203fb \u2040 x\u200dy",
    "q\u0300\u0301\u0302\u0303 z\u0337",
]
BITS = [
    "'s",
    "'T",
    "'ll",
    "1",
    "12",
    "123",
    "\u00bd",
    ".",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    " \n",
    SPACE,
    "<s>",
    "<|end|>",
    "a",
    "B",
    "the",
    " of",
    "\u00e9",
    "e\u0301",
    "\u4e2d",
    "\u65e5\u672c",
    "\u1100",
    "\u1161",
    "\U0001f3fd",
    "\ufb01",
    "\u00df",
    "\u017f",
    "~",
    "$",
    "+",
    "<",
    ">",
    "_",
    "-",
    "\u2014",
    "\u201c",
    "\u3001",
    "\u3002",
    "def ",
    "():",
    "//",
    "ing",
    "The",
    "\u0438\u0437",
    "\u0645\u0646",
    "word",
    "\u0300",
    "\u200d",
    "\u2163",
]

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KIMI = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CLIP = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)


def byte_level(prefix_space=False, use_regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=use_regex)


def split(regex, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(regex), behavior, invert)


def train(tok, special=("<s>", "</s>"), size=420, initial=None, unk=None, **more):
    kind = type(tok.model).__name__
    if kind == "BPE":
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=list(special),
            show_progress=False,
            initial_alphabet=initial or [],
            **more
        )
    elif kind == "Unigram":
        trainer = trainers.UnigramTrainer(
            vocab_size=size,
            special_tokens=list(special),
            unk_token=unk,
            show_progress=False,
            **more
        )
    else:
        trainer = trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=list(special), show_progress=False, **more
        )
    tok.train_from_iterator(CORPUS * 3, trainer)
    return tok


def around(tok, single, *tokens):
    tok.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(t, tok.token_to_id(t)) for t in tokens]
    )
    return tok


def bytes_bpe(pre, normalizer=None, **model):
    tok = Tokenizer(models.BPE(**model))
    tok.pre_tokenizer = pre
    if normalizer:
        tok.normalizer = normalizer
    tok.decoder = decoders.ByteLevel()
    return train(tok, initial=pre_tokenizers.ByteLevel.alphabet())


def gpt2():
    return bytes_bpe(byte_level())


def llama3():
    tok = bytes_bpe(pre_tokenizers.Sequence([split(CL100K), byte_level(use_regex=False)]))
    data = json.loads(tok.to_str())
    data["model"]["ignore_merges"] = True
    # words that their merges do not make
    for word in ("Hello", "\u0120world"):
        data["model"]["vocab"][word] = len(data["model"]["vocab"])
    return around(Tokenizer.from_str(json.dumps(data)), "<s> $A", "<s>")


def qwen():
    return bytes_bpe(
        pre_tokenizers.Sequence([split(CL100K.replace("{1,3}", "")), byte_level(use_regex=False)]),
        normalizers.NFC(),
    )


def kimi():
    return bytes_bpe(pre_tokenizers.Sequence([split(KIMI), byte_level(use_regex=False)]))


def falcon():
    return bytes_bpe(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("contiguous"),
                byte_level(),
                pre_tokenizers.Digits(individual_digits=False),
                split("[0-9][0-9][0-9]"),
            ]
        )
    )


def deepseek():
    return bytes_bpe(
        pre_tokenizers.Sequence(
            [
                split("[\r\n]"),
                split(r"\s?\p{L}+"),
                split(r"\s?\p{P}+"),
                split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
                pre_tokenizers.Digits(individual_digits=True),
                byte_level(use_regex=False),
            ]
        )
    )


def roberta():
    tok = bytes_bpe(byte_level(prefix_space=True))
    tok.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return tok


def clip():
    tok = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tok.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tok.pre_tokenizer = pre_tokenizers.Sequence([split(CLIP, "removed", True), byte_level()])
    tok.decoder = decoders.ByteLevel()
    tok = train(
        tok,
        special=("<s>", "</s>", "<unk>"),
        size=700,
        initial=pre_tokenizers.ByteLevel.alphabet(),
        end_of_word_suffix="</w>",
    )
    tok.post_processor = processors.BertProcessing(("</s>", 1), ("<s>", 0))
    return tok


def piece_bpe(normalizer, pre, decoder, alphabet_limit=None, byte_fallback=True, fuse=True):
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse, byte_fallback=byte_fallback))
    tok.normalizer = normalizers.Sequence([normalizers.Replace(" ", SPACE)])
    tok.pre_tokenizer = pre_tokenizers.Split(
        SPACE, "merged_with_next"
    )  # so that training makes words
    more = {"limit_alphabet": alphabet_limit} if alphabet_limit else {}
    byte_tokens = ["<0x%02X>" % b for b in range(256)] if byte_fallback else []
    tok = train(tok, special=("<unk>", "<s>", "</s>", *byte_tokens), size=256 + 300, **more)
    data = json.loads(tok.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
    data["normalizer"] = data["pre_tokenizer"] = None
    tok = Tokenizer.from_str(json.dumps(data))
    if normalizer:
        tok.normalizer = normalizer
    if pre:
        tok.pre_tokenizer = pre
    tok.decoder = decoder
    return tok


def llama2():
    tok = piece_bpe(
        normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]),
        None,
        decoders.Sequence(
            [
                decoders.Replace(SPACE, " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        ),
        60,
    )
    return around(tok, "<s> $A", "<s>")


def gemma():
    tok = piece_bpe(
        normalizers.Replace(" ", SPACE),
        pre_tokenizers.Split(" ", "merged_with_previous"),
        decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]),
        60,
    )
    return around(tok, "<s> $A", "<s>")


def mistral():
    return piece_bpe(
        None,
        pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False),
        decoders.Sequence(
            [
                decoders.Replace(SPACE, " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        ),
        60,
    )


def no_bytes():
    return piece_bpe(
        None, pre_tokenizers.Metaspace(SPACE), decoders.Metaspace(SPACE), 40, byte_fallback=False
    )


def no_bytes_no_fuse():
    return piece_bpe(
        None,
        pre_tokenizers.Metaspace(SPACE, prepend_scheme="never"),
        decoders.Metaspace(SPACE, prepend_scheme="never"),
        40,
        byte_fallback=False,
        fuse=False,
    )


RULES = {
    "\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ", "\u200b": "", "\ufb01": "fi",
    "\uff21": "A", "\uff22": "B", "e\u0301": "\u00e9", "a\u0308": "\u00e4", "\x01": "",
    "a\u0308\u0323": "\u1ea1\u0308", "\u1100\u1161": "\uac00", "\u1100\u1161\u11a8": "\uac01",
    "\u212b": "\u00c5", "\u2460": "1", "\u3392": "MHz", "q\u0300": "Q",
}  # fmt: skip


def train_sentencepiece(kind, rules, **more):
    """The bytes of a model whose normalisation is `rules`."""
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        for source, target in rules.items():
            codes = [" ".join("%X" % ord(c) for c in text) for text in (source, target)]
            file.write("\t".join(codes) + "\n")
        file.flush()
        normalizer = (
            {"normalization_rule_tsv": file.name}
            if rules
            else {"normalization_rule_name": "identity"}
        )
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS),
            model_writer=out,
            model_type=kind,
            hard_vocab_limit=False,
            minloglevel=2,
            **normalizer,
            **more
        )
    return out.getvalue()


def charsmap():
    """A compiled normalisation of a few rules, as SentencePiece writes it."""
    model = proto.ModelProto()
    model.ParseFromString(train_sentencepiece("unigram", RULES, vocab_size=200))
    return model.normalizer_spec.precompiled_charsmap


def write_sentencepiece(folder, all_texts):
    models_of = {
        "spm-bpe": train_sentencepiece(
            "bpe",
            {},
            vocab_size=600,
            byte_fallback=True,
            remove_extra_whitespaces=False,
            user_defined_symbols=["<|end|>"],
            character_coverage=0.98,
        ),
        "spm-unigram": train_sentencepiece(
            "unigram", RULES, vocab_size=300, user_defined_symbols=["<|end|>"]
        ),
    }
    for name, data in models_of.items():
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        with open(os.path.join(folder, name, "tokenizer.model"), "wb") as file:
            file.write(data)
        processor = sentencepiece.SentencePieceProcessor(model_proto=data)
        with open(os.path.join(folder, name, "goldens.jsonl"), "w") as file:
            for text in all_texts:
                # Here the reference library, which reads whole pipelines, has the last word.
                if re.search("<\\|end\\|>|[\u2581\u2028\u0300]", text):
                    continue
                ids = processor.encode(text)
                line = {"text": text, "ids": ids}
                if processor.unk_id() not in ids:
                    line["decoded"] = processor.decode(ids)
                file.write(json.dumps(line, separators=(",", ":")) + "\n")


def unigram(normalizer, pre, decoder, byte_fallback=False, special=("<pad>", "</s>", "<unk>")):
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizer
    tok.pre_tokenizer = pre_tokenizers.Metaspace(SPACE)
    tok = train(tok, special=special, unk="<unk>", size=300, max_piece_length=12)
    tok.pre_tokenizer = pre
    tok.decoder = decoder
    if byte_fallback:
        data = json.loads(tok.to_str())
        data["model"]["vocab"] += [["<0x%02X>" % b, 0.0] for b in range(256)]
        data["model"]["byte_fallback"] = True
        tok = Tokenizer.from_str(json.dumps(data))
    return tok


def t5():
    tok = unigram(
        normalizers.Precompiled(charsmap()),
        pre_tokenizers.Metaspace(SPACE),
        decoders.Metaspace(SPACE),
    )
    return around(tok, "$A </s>", "</s>")


def xlmr():
    tok = unigram(
        normalizers.Sequence(
            [normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), " ")]
        ),
        pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE)]
        ),
        decoders.Metaspace(SPACE),
    )
    return around(tok, "<pad> $A </s>", "<pad>", "</s>")


def albert():
    return unigram(
        normalizers.Sequence(
            [
                normalizers.Replace("``", '"'),
                normalizers.Replace("''", '"'),
                normalizers.NFKD(),
                normalizers.StripAccents(),
                normalizers.Lowercase(),
                normalizers.Strip(),
                normalizers.Nmt(),
            ]
        ),
        pre_tokenizers.Metaspace(SPACE, prepend_scheme="first"),
        decoders.Metaspace(SPACE, prepend_scheme="first"),
    )


def unigram_bytes():
    return unigram(
        normalizers.NFKC(),
        pre_tokenizers.Metaspace(SPACE, split=False),
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(SPACE)]),
        byte_fallback=True,
    )


def bert(lowercase):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    tok.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece(cleanup=not lowercase)
    tok = train(tok, special=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), size=400)
    return around(tok, "[CLS] $A [SEP]", "[CLS]", "[SEP]")


def words():
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix="@@"))
    tok.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Whitespace(),
            pre_tokenizers.Digits(True),
            pre_tokenizers.Punctuation("merged_with_previous"),
        ]
    )
    return train(tok, special=("[UNK]",), size=300, continuing_subword_prefix="@@")


def added():
    """Added tokens with every flag."""
    tok = bytes_bpe(byte_level(), normalizers.Lowercase())
    tok.add_special_tokens(
        [
            AddedToken("<|end|>", special=True, normalized=False, rstrip=True),
            AddedToken("<|left|>", special=True, normalized=False, lstrip=True),
        ]
    )
    tok.add_tokens(
        [
            AddedToken("<|right|>", normalized=False, rstrip=True),
            AddedToken("word", single_word=True, normalized=False),
            AddedToken("normalized", normalized=True),
            AddedToken("  ", normalized=False),
            AddedToken("    ", normalized=False),
        ]
    )
    return tok


def superwords():
    return bytes_bpe(
        pre_tokenizers.Sequence(
            [split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))"), byte_level(use_regex=False)]
        )
    )


KINDS = {
    "gpt2": gpt2,
    "llama3": llama3,
    "qwen": qwen,
    "kimi": kimi,
    "falcon": falcon,
    "deepseek": deepseek,
    "roberta": roberta,
    "clip": clip,
    "llama2": llama2,
    "gemma": gemma,
    "mistral": mistral,
    "no-bytes": no_bytes,
    "no-bytes-no-fuse": no_bytes_no_fuse,
    "t5": t5,
    "xlmr": xlmr,
    "albert": albert,
    "unigram-bytes": unigram_bytes,
    "bert-uncased": lambda: bert(True),
    "bert-cased": lambda: bert(False),
    "words": words,
    "added": added,
    "superwords": superwords,
}


def texts(count):
    rnd = random.Random(11)
    more = ["".join(rnd.choice(BITS) for _ in range(rnd.randrange(1, 25))) for _ in range(count)]
    return list(dict.fromkeys(TEXTS + more))


def goldens(tok, all_texts):
    around_text = tok.encode("a").ids, tok.encode("a", add_special_tokens=False).ids
    start = next(
        i
        for i in range(len(around_text[0]))
        if around_text[0][i : i + len(around_text[1])] == around_text[1]
    )
    yield {
        "prefix": around_text[0][:start],
        "suffix": around_text[0][start + len(around_text[1]) :],
    }
    specials = {i for i, t in tok.get_added_tokens_decoder().items() if t.special}
    for text in all_texts:
        line = {"text": text}
        tok.encode_special_tokens = False
        line["ids"] = tok.encode(text, add_special_tokens=False).ids
        line["decoded"] = tok.decode(line["ids"], skip_special_tokens=True)
        tok.encode_special_tokens = True
        plain = tok.encode(text, add_special_tokens=False).ids
        unknown = tok.token_to_id("<unk>"), tok.token_to_id("[UNK]")
        if (
            not any(i in specials and i not in unknown for i in plain)
            and "<unk>" not in text
            and "[UNK]" not in text
        ):
            line["plain"] = plain
        yield line


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else FOLDER
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    write_sentencepiece(os.path.join(folder, "..", "sentencepiece"), texts(count))
    for name, make in KINDS.items():
        if len(sys.argv) > 3 and name not in sys.argv[3:]:
            continue
        tok = make()
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        data = json.loads(tok.to_str())
        tok = Tokenizer.from_str(json.dumps(data))
        with open(os.path.join(folder, name, "tokenizer.json"), "w") as file:
            json.dump(data, file, separators=(",", ":"))
            file.write("\n")
        with open(os.path.join(folder, name, "goldens.jsonl"), "w") as file:
            for line in goldens(tok, texts(count)):
                file.write(json.dumps(line, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
