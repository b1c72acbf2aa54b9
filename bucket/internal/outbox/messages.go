package outbox

// Each tells of every message how it ended, in order, and says how many there were. Of says by the
// number of which message one thing went, and what became of it; messages are numbered from 0 in
// the order of the first things that they held. Ended hears of that first thing, and of the first
// error of any that the message held: what is lost with one message is one failure.
func Each[T any](all []T, of func(*T) (message int, err error), ended func(first *T, err error)) (messages int) {
	for i := range all {
		if message, _ := of(&all[i]); message >= messages {
			messages = message + 1
			ended(&all[i], worst(all[i:], message, of))
		}
	}
	return messages
}

// worst is the first error of what a message held.
func worst[T any](all []T, number int, of func(*T) (int, error)) error {
	for i := range all {
		if message, err := of(&all[i]); message == number && err != nil {
			return err
		}
	}
	return nil
}
