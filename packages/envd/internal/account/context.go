package account

// The user of a request, carried through its context.

import "context"

type nameKey struct{}

// WithName notes in the request whom it acts for; the lookup waits until someone needs it.
func WithName(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

// Of looks up the user that the request acts for.
func Of(ctx context.Context) (Account, error) {
	name, _ := ctx.Value(nameKey{}).(string)
	return Lookup(name)
}
