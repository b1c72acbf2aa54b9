// Package edge holds no code but tests: the modules of package wasm decide as the library does,
// in wazero, in Node, in workerd and in Envoy.
package edge
