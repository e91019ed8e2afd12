#!/usr/bin/env python3
"""One RWKV-7 training step (forward, backward, clip, AdamW) in JAX on the CPU, op by op and compiled, beside Ingot's.

    pip install jax numpy safetensors
    python3 tools/compare/compare.py [--ingot build/ingot] [--precision f32,bf16] [layers=6 width=512 batch=4 time=256 vocab=256]

Both start from the same random weights and batch (written to a safetensors file); in f32 their losses must agree after --check steps, in bf16 at the first,
or the script fails: the times are of the same mathematics. Run it alone on the machine; `taskset -c 0,1` for two cores.
In JAX "eager" is one dispatch an op, but WKV7, a scan over time, is one compiled op even there.
"""
import argparse, json, math, os, statistics, subprocess, sys, tempfile, time

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

TRAIN = dict(lr=1e-3, decay=0.1, clip=1.0, beta1=0.9, beta2=0.99, adam_eps=1e-8)
HEAD = 64


# ---------------------------------------------------------------- the same weights for both


def rank(width, factor):
    return max(32, 32 * round(factor * math.sqrt(width) / 32))


def weights(c, random):
    d, v = c["width"], c["vocab"]
    p = {}

    def vector(name, mean, *shape):
        p[name] = (mean + 0.1 * random.standard_normal(shape or (d,))).astype(np.float32)

    def matrix(name, rows, columns, inner):
        p[name] = (random.standard_normal((rows, columns)) / math.sqrt(inner)).astype(np.float32)

    matrix("emb.weight", v, d, 1)
    matrix("head.weight", v, d, d)
    for name in ("blocks.0.ln0", "ln_out"):
        vector(name + ".weight", 1), vector(name + ".bias", 0)
    for layer in range(c["layers"]):
        b = f"blocks.{layer}."
        for name in ("ln1", "ln2", "att.ln_x"):
            vector(b + name + ".weight", 1), vector(b + name + ".bias", 0)
        for name, mean in dict(x_r=0.5, x_w=0.5, x_k=0.5, x_v=0.5, x_a=0.5, x_g=0.5, w0=-2, a0=0, k_k=0.7, k_a=1).items():
            vector(b + "att." + name, mean, 1, 1, d)
        vector(b + "att.r_k", 0, d // HEAD, HEAD)
        for name, factor in dict(w=2.5, a=2.5, v=1.7, g=5).items():
            if name == "v" and layer == 0:
                continue
            r = rank(d, factor)
            matrix(b + f"att.{name}1", d, r, d), matrix(b + f"att.{name}2", r, d, r)
        if layer > 0:
            vector(b + "att.v0", 0.5, 1, 1, d)
        for name in ("receptance", "key", "value", "output"):
            matrix(b + f"att.{name}.weight", d, d, d)
        vector(b + "ffn.x_k", 0.5, 1, 1, d)
        matrix(b + "ffn.key.weight", 4 * d, d, d)
        matrix(b + "ffn.value.weight", d, 4 * d, 4 * d)
    return p


# ---------------------------------------------------------------- the model, as models/rwkv7.yaml writes it


def norm(x, weight, bias, eps=1e-5):
    x = x.astype(jnp.float32)
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + eps) * weight + bias


def shift(x):
    return jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]


def wkv7_step(state, now):
    r, d, k, v, a, b = now
    state = state * d[..., None, :] + jnp.einsum("bhij,bhj,bhk->bhik", state, a, b) + v[..., None] * k[..., None, :]
    return state, jnp.einsum("bhij,bhj->bhi", state, r)


@jax.jit  # also in the eager run: op by op, JAX would trace and compile the scan anew at every call
def wkv7(r, w, k, v, a, b):
    decay = jnp.exp(-math.exp(-0.5) * jax.nn.sigmoid(w))
    batch, _, heads, n = r.shape
    by_time = [x.astype(jnp.float32).swapaxes(0, 1) for x in (r, decay, k, v, a, b)]
    return jax.lax.scan(wkv7_step, jnp.zeros((batch, heads, n, n)), by_time)[1].swapaxes(0, 1)


def time_mix(p, x, first, dtype):
    batch, length, d = x.shape
    heads = (batch, length, d // HEAD, HEAD)
    x, dx = x.astype(dtype), (shift(x) - x).astype(dtype)
    xr, xw, xk, xv, xa, xg = (x + dx * p["x_" + name].astype(dtype) for name in "rwkvag")
    mul = lambda y, name: y @ p[name].astype(dtype)
    linear = lambda y, name: y @ p[name + ".weight"].astype(dtype).T
    f32 = lambda y: y.astype(jnp.float32)
    r, k0, v = f32(linear(xr, "receptance")), f32(linear(xk, "key")), f32(linear(xv, "value"))
    w = p["w0"] + f32(mul(jnp.tanh(mul(xw, "w1")), "w2"))
    a = jax.nn.sigmoid(p["a0"] + f32(mul(mul(xa, "a1"), "a2")))
    g = f32(mul(jax.nn.sigmoid(mul(xg, "g1")), "g2"))
    if first is None:
        first = v
    else:
        v = v + (first - v) * jax.nn.sigmoid(p["v0"] + f32(mul(mul(xv, "v1"), "v2")))
    kk = (k0 * p["k_k"]).reshape(heads)
    kk = kk / jnp.maximum(jnp.sqrt((kk * kk).sum(-1, keepdims=True)), 1e-12)
    k = (k0 * (1 + (a - 1) * p["k_a"])).reshape(heads)
    r, w, v, a = (y.reshape(heads) for y in (r, w, v, a))
    s = wkv7(*(y.astype(dtype) for y in (r, w, k, v, -kk, kk * a)))
    n = norm(s, p["ln_x.weight"].reshape(heads[2:]), p["ln_x.bias"].reshape(heads[2:]), 64e-5)
    bonus = (r * k * p["r_k"]).sum(-1, keepdims=True) * v
    return linear(((n + bonus).reshape(x.shape) * g).astype(dtype), "output"), first


def channel_mix(p, x, dtype):
    k = (x + (shift(x) - x) * p["x_k"]).astype(dtype)
    return jnp.square(jax.nn.relu(k @ p["key.weight"].astype(dtype).T)) @ p["value.weight"].astype(dtype).T


def part(p, prefix):
    return {name[len(prefix):]: value for name, value in p.items() if name.startswith(prefix)}


def loss_of(p, tokens, targets, layers, dtype):
    x = norm(p["emb.weight"][tokens], p["blocks.0.ln0.weight"], p["blocks.0.ln0.bias"])
    first = None
    for layer in range(layers):
        b = part(p, f"blocks.{layer}.")
        h, first = time_mix(part(b, "att."), norm(x, b["ln1.weight"], b["ln1.bias"]), first, dtype)
        x = x + h
        x = x + channel_mix(part(b, "ffn."), norm(x, b["ln2.weight"], b["ln2.bias"]), dtype)
    logits = norm(x, p["ln_out.weight"], p["ln_out.bias"]).astype(dtype) @ p["head.weight"].astype(dtype).T
    logits = logits.astype(jnp.float32)
    picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


def factors(name, value):
    """lr and decay of a parameter, as the optimizer's groups say."""
    if name.endswith("att.w0"):
        return 2.0, 0.0
    return 1.0, float(name.endswith(".weight") and sum(size > 1 for size in value.shape) >= 2)


def train_step(p, m, v, t, tokens, targets, layers, dtype):
    o = TRAIN
    loss, g = jax.value_and_grad(loss_of)(p, tokens, targets, layers, dtype)
    scale = o["clip"] / jnp.maximum(jnp.sqrt(sum((x * x).sum() for x in g.values())), o["clip"])
    c1, c2 = 1 - o["beta1"] ** t, 1 - o["beta2"] ** t
    new_p, new_m, new_v = {}, {}, {}
    for name, value in p.items():
        lr, decay = factors(name, value)
        grad = g[name] * scale
        new_m[name] = o["beta1"] * m[name] + (1 - o["beta1"]) * grad
        new_v[name] = o["beta2"] * v[name] + (1 - o["beta2"]) * grad * grad
        direction = new_m[name] / c1 / (jnp.sqrt(new_v[name] / c2) + o["adam_eps"])
        new_p[name] = value - o["lr"] * lr * (o["decay"] * decay * value + direction)
    return loss, new_p, new_m, new_v


# ---------------------------------------------------------------- running


def run_jax(c, start, tokens, targets, dtype, steps, check, compiled):
    step = lambda p, m, v, t, a, b: train_step(p, m, v, t, a, b, c["layers"], dtype)
    if compiled:
        step = jax.jit(step, donate_argnums=(0, 1, 2))
    p = {name: jnp.array(value) for name, value in start.items()}
    m, v = ({name: jnp.zeros_like(value) for name, value in p.items()} for _ in range(2))
    times, checked = [], None
    for t in range(1, max(check, steps + 1) + 1):
        begin = time.perf_counter()
        loss, p, m, v = step(p, m, v, jnp.float32(t), tokens, targets)
        jax.block_until_ready((loss, p, m, v))
        times.append(time.perf_counter() - begin)
        if t == check:
            checked = float(loss)
    return checked, times[0], times[1:]


def run_ingot(c, options, folder, weights_file, precision, check):
    plan, out = f"{folder}/{precision}.plan", f"{folder}/{precision}.safetensors"
    keys = [f"{k}={v}" for k, v in c.items()] + [f"{k}={v:g}" for k, v in TRAIN.items()]
    keys += [f"lr_final={TRAIN['lr']:g}", "warmup=0", "l2wrap=0"]
    call = lambda *words: subprocess.run([options.ingot, *words], check=True, capture_output=True, text=True).stdout
    begin = time.perf_counter()
    call("compile", options.model, "-o", plan, "--precision", precision, *keys)
    compile_time = time.perf_counter() - begin
    call("run", plan, "--program", "train", "--in", weights_file, "--out", out, "--repeat", str(check))
    results = load_file(out)
    bench = json.loads(call("bench", plan, "--steps", str(options.steps), "--json"))
    return float(results["out.loss"]) / float(results["out.count"]), compile_time, bench["step_seconds"]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", help="key=value: layers, width, batch, time, vocab")
    parser.add_argument("--ingot", default=os.path.join(here, "../../build/ingot"))
    parser.add_argument("--model", default=os.path.join(here, "../../models/rwkv7.yaml"))
    parser.add_argument("--precision", default="f32,bf16")
    parser.add_argument("--steps", type=int, default=10, help="timed steps")
    parser.add_argument("--eager-steps", type=int, default=3)
    parser.add_argument("--check", type=int, default=3, help="the step whose losses are compared (f32)")
    options = parser.parse_args()
    c = dict(layers=6, width=512, batch=4, time=256, vocab=256)
    for word in options.sizes:
        key, value = word.split("=")
        c[key] = int(value)

    random = np.random.default_rng(0)
    start = weights(c, random)
    tokens, targets = (random.integers(0, c["vocab"], (c["batch"], c["time"])).astype(np.int32) for _ in range(2))
    agree = True
    print(f"{c}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}, jax {jax.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        weights_file = f"{folder}/start.safetensors"
        save_file({**{"param." + k: v for k, v in start.items()}, "in.tokens": tokens, "in.targets": targets}, weights_file)
        for precision in options.precision.split(","):
            dtype = jnp.bfloat16 if precision == "bf16" else jnp.float32
            # Adam makes much of little: in 16 bits only the first loss, before any update, must be the same.
            check = options.check if precision == "f32" else 1
            jax_run = lambda steps, compiled: run_jax(c, start, tokens, targets, dtype, steps, check, compiled)
            rows = [
                ("Ingot", *run_ingot(c, options, folder, weights_file, precision, check)),
                ("JAX compiled", *jax_run(options.steps, True)),
                ("JAX eager", *jax_run(options.eager_steps, False)),
            ]
            base = statistics.median(rows[0][3])
            for name, loss, first, times in rows:
                median = statistics.median(times)
                print(f"{precision:5} {name:13} step {1e3 * median:9.1f} ms (least {1e3 * min(times):9.1f})  "
                      f"{c['batch'] * c['time'] / median:8.0f} tokens/s  {median / base:6.2f} x Ingot  "
                      f"first {first:6.1f} s  loss {loss:.6f} at step {check}", flush=True)
                agree &= abs(loss - rows[0][1]) <= (5e-5 if precision == "f32" else 1e-2) * abs(loss)
    if not agree:
        sys.exit("the losses differ: these are not the same steps")


if __name__ == "__main__":
    main()
