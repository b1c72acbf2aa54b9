// Command adaptive measures limits that follow an API's latency, in virtual time, beside others.
package main

import "fmt"

func main() {
	for _, s := range scenarios(3) {
		for _, c := range contenders() {
			o := run(s, c.make(), 1)
			fmt.Printf("%-30s %-16s goodput %.3f p99 %8v cv %.3f least %.2f most %.2f\n", s.name, c.name, o.Goodput, o.P99, o.CV, o.Least, o.Most)
		}
	}
}
