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

// few is that so many callers are poisoned all the time.
func few(n int) func(float64) int { return func(float64) int { return n } }

// scenarios ask for so many times what the API can do, where they ask for too much.
func scenarios(times float64) []scenario {
	more, well := always(times*quick.mu), always(1)
	halves := between(100, 200, 0.5, 1)
	sine := func(s float64) float64 { return 0.75 + 0.25*math.Sin(2*math.Pi*s/100) }
	all := []scenario{
		{name: "steady", seconds: 300, offered: more, capacity: well, steady: true},
		{name: "capacity halves for 100 s", seconds: 300, offered: more, capacity: halves},
		{name: "surge from half of it", seconds: 200, capacity: well,
			offered: between(50, 150, times*10/3*quick.mu, quick.mu/2)},
		{name: "capacity is a sine", seconds: 300, offered: more, capacity: sine},
		{name: "1 caller of 3 is poisoned", seconds: 120, offered: always(0.6 * quick.mu), capacity: well, callers: 3,
			poisoned: few(1)},
		{name: "10 of 50 are, and it halves", seconds: 300, offered: more, capacity: halves, poisoned: few(10)},
	}
	for i := range all {
		if all[i].backend = quick; all[i].callers == 0 {
			all[i].callers = 50
		}
	}
	return all
}

const hour = 3600.0

// day is 24 hours: requests come by the time of day, with a spike every two hours; the capacity halves three times, for
// ten minutes to an hour; and from 14 to 16 o'clock ten of fifty callers are poisoned.
func day() scenario {
	return scenario{
		backend: slow, name: "a day", seconds: 24 * hour, callers: 50,
		offered: func(s float64) float64 {
			usual := slow.mu * (0.4 - 0.2*math.Cos(2*math.Pi*s/(24*hour)))
			if into := math.Mod(s, 2*hour); into >= hour && into < hour+300 {
				usual *= 6
			}
			return usual
		},
		capacity: func(s float64) float64 {
			for _, from := range [][2]float64{{9, 10}, {13.9, 14.1}, {19, 19.5}} {
				if from[0]*hour <= s && s < from[1]*hour {
					return 0.5
				}
			}
			return 1
		},
		poisoned: func(s float64) int {
			if 14*hour <= s && s < 16*hour {
				return 10
			}
			return 0
		},
	}
}
