#!/usr/bin/env python3
"""Records what ONNX Runtime computes for operators that ONNX's own node tests do not cover.

Writes runtime_cases.txt beside this file; runtime_cases_test.cc reads it. Needed only to record
again: any Python with onnx and onnxruntime (scripts/setup.sh --oracle installs them).
"""
import os

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort

RNG = np.random.default_rng(7)
MS = 'opset_import: ["" : 17, "com.microsoft" : 1]'


def f(*dims, scale=1.0):
    return np.round(RNG.uniform(-1, 1, dims) * scale, 3).astype(np.float32)


def angles(rows, width):
    a = np.outer(np.arange(rows), 1.0 / 10 ** (np.arange(width) / width))
    return {
        "cosine": np.round(np.cos(a), 4).astype(np.float32),
        "sine": np.round(np.sin(a), 4).astype(np.float32),
    }


def declared(name, value):
    kinds = {"float32": "float", "int32": "int32", "int64": "int64"}
    dims = f"[{','.join(map(str, value.shape))}]" if value.shape else ""
    return f"{kinds[value.dtype.name]}{dims} {name}"


def cases():
    x, s = f(2, 3, 4), f(2, 3, 4)
    g, b, e = f(4), f(4), f(4)
    yield "skip_layer_norm", MS, "com.microsoft.SkipLayerNormalization <epsilon = 0.01> (x, s, g, b, e)", dict(
        x=x, s=s, g=g, b=b, e=e), ["y", "", "", "sum"]
    yield "skip_layer_norm_plain", MS, "com.microsoft.SkipLayerNormalization (x, s, g)", dict(
        x=x, s=s, g=g), ["y"]
    yield "skip_rms_norm", MS, "com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.001> (x, s, g, e)", dict(
        x=x, s=s, g=g, e=e), ["y", "", "", "sum"]
    ids = np.array([[0, 2, 1], [4, 0, 3]], np.int32)
    seg = np.array([[0, 1, 1], [0, 0, 1]], np.int32)
    mask = np.array([[1, 1, 0], [1, 0, 0]], np.int32)
    yield "embed_layer_norm", MS, "com.microsoft.EmbedLayerNormalization <epsilon = 0.001> (i, t, w, p, st, g, b, m)", dict(
        i=ids, t=seg, w=f(5, 4), p=f(6, 4), st=f(2, 4), g=g, b=b, m=mask), ["y", "n"]
    yield "gelu", MS, "com.microsoft.Gelu (x)", dict(x=f(2, 5, scale=3)), ["y"]
    yield "fast_gelu", MS, "com.microsoft.FastGelu (x, b)", dict(x=f(3, 4, scale=3), b=b), ["y"]
    yield "bias_gelu", MS, "com.microsoft.BiasGelu (x, b)", dict(x=f(3, 4, scale=3), b=b), ["y"]
    yield "quick_gelu", MS, "com.microsoft.QuickGelu <alpha = 1.5> (x)", dict(x=f(3, 4, scale=3)), ["y"]
    yield "fused_matmul", MS, "com.microsoft.FusedMatMul <alpha = 0.5, transA = 1, transB = 1> (a, b)", dict(
        a=f(2, 3, 2), b=f(2, 4, 3)), ["y"]
    yield "fused_matmul_batch", MS, "com.microsoft.FusedMatMul <transBatchA = 1, transBatchB = 1> (a, b)", dict(
        a=f(2, 3, 4), b=f(4, 3, 5)), ["y"]
    q, k, v = f(2, 3, 4), f(2, 5, 4), f(2, 5, 4)
    mha = "com.microsoft.MultiHeadAttention"
    yield "multi_head_attention", MS, mha + " <num_heads = 2> (q, k, v)", dict(q=q, k=k, v=v), ["y"]
    keys = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], np.int32)
    yield "multi_head_attention_mask_bias", MS, mha + " <num_heads = 2, scale = 0.3> (q, k, v, b, m, a)", dict(
        q=q, k=k, v=v, b=f(12), m=keys, a=f(1, 2, 3, 5)), ["y"]
    yield "multi_head_attention_causal", MS, mha + " <num_heads = 2, unidirectional = 1> (q, k, v)", dict(
        q=q, k=f(2, 3, 4), v=f(2, 3, 4)), ["y"]
    yield "multi_head_attention_split_keys", MS, mha + " <num_heads = 2> (q, k, v)", dict(
        q=q, k=f(2, 2, 5, 2), v=f(2, 2, 5, 2)), ["y"]
    yield "attention", MS, "com.microsoft.Attention <num_heads = 2> (x, w, b)", dict(
        x=x, w=f(4, 12), b=f(12)), ["y"]
    rows = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    yield "attention_mask_causal", MS, "com.microsoft.Attention <num_heads = 2, unidirectional = 1> (x, w, b, m)", dict(
        x=x, w=f(4, 12), b=f(12), m=rows), ["y"]
    yield "attention_lengths", MS, "com.microsoft.Attention <num_heads = 2> (x, w, b, m)", dict(
        x=x, w=f(4, 12), b=f(12), m=np.array([2, 3], np.int32)), ["y"]
    rope = "com.microsoft.RotaryEmbedding"
    where = np.array([[0, 1, 2], [3, 4, 5]], np.int64)
    yield "rotary", MS, rope + " (x, i, cosine, sine)", dict(x=f(2, 3, 8), i=where, **angles(6, 2)), ["y"]
    yield "rotary_interleaved", MS, rope + " <interleaved = 1> (x, i, cosine, sine)", dict(
        x=f(2, 2, 3, 4), i=np.array([2], np.int64), **angles(6, 2)), ["y"]
    gqa = "com.microsoft.GroupQueryAttention"
    lengths = dict(n=np.array([2, 2], np.int32), total=np.array(3, np.int32))
    yield "group_query_attention", MS, gqa + ' <num_heads = 4, kv_num_heads = 2> (q, k, v, "", "", n, total)', dict(
        q=f(2, 3, 32), k=f(2, 3, 16), v=f(2, 3, 16), **lengths), ["y", "pk", "pv"]
    yield "group_query_attention_rotary", MS, gqa + (
        ' <num_heads = 4, kv_num_heads = 2, do_rotary = 1, softcap = 0.5, local_window_size = 2>'
        ' (q, k, v, "", "", n, total, cosine, sine)'), dict(
        q=f(2, 3, 64), k=f(2, 3, 32), v=f(2, 3, 32), **lengths, **angles(4, 8)), ["y", "pk", "pv"]

    std = 'opset_import: ["" : 17]'
    lens = np.array([3, 1, 2], np.int32)
    yield "lstm_everything", std, (
        'LSTM <hidden_size = 2, direction = "bidirectional", clip = 0.4, activations = '
        '["HardSigmoid", "Softsign", "ScaledTanh", "Sigmoid", "LeakyRelu", "Elu"], '
        "activation_alpha = [0.3, 0.8, 0.2, 0.7], activation_beta = [0.4, 1.2]>"
        " (x, w, r, b, n, h, c, p)"), dict(
        x=f(3, 3, 4), w=f(2, 8, 4), r=f(2, 8, 2), b=f(2, 16), n=lens, h=f(2, 3, 2),
        c=f(2, 3, 2, scale=3), p=f(2, 6)), ["y", "yh", "yc"]
    yield "lstm_coupled_reverse", std, (
        'LSTM <hidden_size = 2, direction = "reverse", input_forget = 1> (x, w, r, b, n)'), dict(
        x=f(3, 3, 4), w=f(1, 8, 4), r=f(1, 8, 2), b=f(1, 16), n=lens), ["y", "yh", "yc"]
    gru = dict(x=f(3, 3, 4), w=f(2, 6, 4), r=f(2, 6, 2), b=f(2, 12), n=lens, h=f(2, 3, 2))
    yield "gru_linear_first", std, (
        'GRU <hidden_size = 2, direction = "bidirectional", linear_before_reset = 1>'
        " (x, w, r, b, n, h)"), gru, ["y", "yh"]
    yield "gru_reset_first", std, (
        'GRU <hidden_size = 2, direction = "bidirectional", clip = 0.5, activations = '
        '["Relu", "Affine", "ThresholdedRelu", "Softplus"], activation_alpha = [0.9, 0.1], '
        "activation_beta = [0.2]> (x, w, r, b, n, h)"), gru, ["y", "yh"]
    yield "rnn_reverse", std, (
        'RNN <hidden_size = 2, direction = "reverse"> (x, w, r, b, n, h)'), dict(
        x=f(3, 3, 4), w=f(1, 2, 4), r=f(1, 2, 2), b=f(1, 4), n=lens, h=f(1, 3, 2)), ["y", "yh"]


def text_of(value):
    kind = {"float32": "f32", "int32": "i32", "int64": "i64"}[value.dtype.name]
    number = (lambda v: repr(float(f"{v:.8g}"))) if kind == "f32" else str
    dims = ",".join(map(str, value.shape))
    return f"{kind}[{dims}] " + " ".join(number(v) for v in value.reshape(-1))


def main():
    out = ["# Written by record_runtime_cases.py with ONNX Runtime " + ort.__version__ + "."]
    for name, opsets, call, inputs, outputs in cases():
        wanted = [o for o in outputs if o]
        head = ", ".join(declared(n, v) for n, v in inputs.items())
        types = ["int32" if o == "n" else "float" for o in wanted]
        results = ", ".join(f"{t} {o}" for t, o in zip(types, wanted))
        left = ", ".join(o if o else '""' for o in outputs)
        text = f"<ir_version: 8, {opsets}> g ({head}) => ({results}) {{ {left} = {call} }}"
        model = onnx.parser.parse_model(text)
        for info in model.graph.output:  # shapes are what the runtime says
            info.type.tensor_type.ClearField("shape")
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        values = session.run(wanted, inputs)
        dims = [f"{t}[{','.join(map(str, v.shape))}] {o}" for t, o, v in zip(types, wanted, values)]
        text = f"<ir_version: 8, {opsets}> g ({head}) => ({', '.join(dims)}) {{ {left} = {call} }}"
        out += ["", f"case {name}", f"model {text}"]
        out += [f"in {n} {text_of(v)}" for n, v in inputs.items()]
        out += [f"out {n} {text_of(v)}" for n, v in zip(wanted, values)]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "runtime_cases.txt")
    with open(path, "w") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
