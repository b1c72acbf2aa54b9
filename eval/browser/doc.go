// Package browser opens the gateway's page in a real browser, and does there what an operator does.
package browser
