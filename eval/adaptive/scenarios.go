package main

import "math"

func always(v float64) func(float64) float64 { return func(float64) float64 { return v } }

// between is in from one time to another, and out otherwise.
func between(from, to, in, out float64) func(float64) float64 {
	return func(s float64) float64 {
		if from <= s && s < to {
			return in
		}
		return out
	}
}

func scenarios() []scenario {
	const callers = 50
	return []scenario{
		{name: "steady, 3 times what it can", seconds: 300, offered: always(3 * mu), capacity: always(1), callers: callers},
		{name: "capacity halves for 100 s", seconds: 300, offered: always(3 * mu), capacity: between(100, 200, 0.5, 1),
			callers: callers},
		{name: "surge from 0.5 to 10 times", seconds: 200, offered: between(50, 150, 10*mu, mu/2), capacity: always(1),
			callers: callers},
		{name: "capacity as a sine", seconds: 300, offered: always(3 * mu),
			capacity: func(s float64) float64 { return 0.75 + 0.25*math.Sin(2*math.Pi*s/100) }, callers: callers},
		{name: "one caller of 3 is poisoned", seconds: 120, offered: always(0.6 * mu), capacity: always(1), callers: 3,
			poisoned: 1},
		{name: "10 of 50 are, and it halves", seconds: 300, offered: always(3 * mu), capacity: between(100, 200, 0.5, 1),
			callers: callers, poisoned: 10},
	}
}
