// Package agents holds what agents get through the gateway, by the official client and server of the Model Context
// Protocol.
package agents
