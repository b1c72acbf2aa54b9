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

// scenarios ask for so many times what the API can do, where they ask for too much.
func scenarios(times float64) []scenario {
	const callers = 50
	more, well := always(times*mu), always(1)
	halves := between(100, 200, 0.5, 1)
	return []scenario{
		{name: "steady", seconds: 300, offered: more, capacity: well, callers: callers, steady: true},
		{name: "capacity halves for 100 s", seconds: 300, offered: more, capacity: halves, callers: callers},
		{name: "surge from half of it", seconds: 200, offered: between(50, 150, times*10/3*mu, mu/2), capacity: well,
			callers: callers},
		{name: "capacity is a sine", seconds: 300, offered: more,
			capacity: func(s float64) float64 { return 0.75 + 0.25*math.Sin(2*math.Pi*s/100) }, callers: callers},
		{name: "1 caller of 3 is poisoned", seconds: 120, offered: always(0.6 * mu), capacity: well, callers: 3, poisoned: 1},
		{name: "10 of 50 are, and it halves", seconds: 300, offered: more, capacity: halves, callers: callers, poisoned: 10},
	}
}
