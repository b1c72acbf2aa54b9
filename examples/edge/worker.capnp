# workerd serve worker.capnp: the worker without Cloudflare. A proxy has to stand before it that writes CF-Connecting-IP,
# and to be the only one who reaches it: clients could write that field themselves.
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [(name = "limited", worker = .limited)],
  sockets = [(name = "http", address = "127.0.0.1:8080", http = (), service = "limited")],
);

const limited :Workerd.Worker = (
  compatibilityDate = "2026-01-01",
  modules = [
    (name = "worker.js", esModule = embed "worker.js"),
    (name = "headgate-edge", esModule = embed "../../clients/edge-js/index.js"),
    (name = "limits.wasm", wasm = embed "limits.wasm"),
  ],
);
