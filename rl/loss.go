package rl

import (
	"fmt"
	"math"
)

// maxLogRatio bounds the logarithm of an importance ratio before it is
// exponentiated, so that a token that became absurdly likely gives a large
// number and not an infinity.
const maxLogRatio = 20

// maskEpsilon keeps masked means over no token finite.
const maskEpsilon = 1e-8

// Ratio is the importance ratio of a token: its probability under the policy
// being trained over that under the policy that sampled it. The logarithm is
// clamped to ±20.
func Ratio(logprob, old float64) float64 { return math.Exp(clampLog(logprob - old)) }

func clampLog(d float64) float64 { return min(max(d, -maxLogRatio), maxLogRatio) }

// Surrogate is the objective of a policy gradient. In the formulas A is the
// advantage of a token, ρ its importance ratio, Low and High are those of
// [Clip].
type Surrogate string

const (
	// PPO is max(-A·ρ, -A·clamp(ρ, 1-Low, 1+High)) (arXiv:1707.06347, equation 7,
	// with the sign of a loss), bounded by -A·Dual for negative A when Dual is set
	// (dual clip, arXiv:1912.09729). High above Low is clip-higher (DAPO,
	// arXiv:2503.14476, equation 10).
	PPO Surrogate = "ppo"
	// GSPO clips the ratio of the whole sequence, s = exp(mean log ρ), like PPO
	// does that of a token (arXiv:2507.18071, equations 5 to 7, in the token form
	// of its section 4.3, in which every token keeps its own advantage).
	GSPO Surrogate = "gspo"
	// GMPO is -A times the geometric mean of the tokens' ratios, each held to
	// [exp(-Low), exp(High)] on the side that its advantage pushes to
	// (arXiv:2507.20673). A is the mean over the sequence.
	GMPO Surrogate = "gmpo"
	// CISPO is -clamp(ρ, 1-Low, 1+High)·A·logprob, where the clamped ratio is a
	// constant: every token keeps a gradient (the CISPO objective of
	// MiniMax-M1, arXiv:2506.13585).
	CISPO Surrogate = "cispo"
	// DPPO is -A·ρ, without the tokens whose probability the update has moved
	// by more than High upwards (positive A) or Low downwards (negative A): the
	// binary total-variation mask of arXiv:2602.04879. Its gradient is that of
	// verl, which truncates ρ at 20 on top.
	DPPO Surrogate = "dppo"
	// Reinforce is -A·logprob, without a ratio; Low and High must be 0.
	Reinforce Surrogate = "reinforce"
)

// Surrogates lists all of them.
func Surrogates() []Surrogate { return []Surrogate{PPO, GSPO, GMPO, CISPO, DPPO, Reinforce} }

// Clip bounds how far a policy may move in one update. Both bounds at 0 mean
// those of [Surrogate.Clip].
type Clip struct {
	Low  float64 `json:"low,omitempty"`  // at least 0; for [PPO] and [GSPO] below 1, for [CISPO] at most 1
	High float64 `json:"high,omitempty"` // at least 0
	// Dual bounds the loss of a token with negative advantage by Dual·|A|; it
	// must exceed 1; 0 turns it off. Only [PPO] has it.
	Dual float64 `json:"dual,omitempty"`
}

// Clip returns the bounds that the surrogate is published with: PPO 0.2 and 0.2
// (arXiv:1707.06347, table 1), GSPO 3e-4 and 4e-4 (arXiv:2507.18071, section 5.1),
// GMPO 0.4 and 0.4 (arXiv:2507.20673, section 4), CISPO 1 and 4 (a ratio of at most
// 5, as in arXiv:2510.13786), DPPO 0.2 and 0.2.
func (s Surrogate) Clip() Clip {
	switch s {
	case GSPO:
		return Clip{Low: 3e-4, High: 4e-4}
	case GMPO:
		return Clip{Low: 0.4, High: 0.4}
	case CISPO:
		return Clip{Low: 1, High: 4}
	case Reinforce:
		return Clip{}
	case PPO, DPPO:
	}
	return Clip{Low: 0.2, High: 0.2}
}

// Loss is everything that is minimised in a policy-gradient update. The zero
// value is PPO's clipped loss with its published bounds and the mean over
// tokens.
type Loss struct {
	Surrogate Surrogate `json:"surrogate,omitempty"` // empty means [PPO]
	Clip      Clip      `json:"clip,omitzero"`
	// KL is added for moving away from the reference policy.
	KL KL `json:"kl,omitzero"`
	// Entropy is the coefficient with which the entropy of the policy is taken
	// off the loss; 0 means not at all.
	Entropy float64 `json:"entropy,omitempty"`
	// Aggregation joins the losses of tokens; empty means [TokenMean].
	Aggregation Aggregation `json:"aggregation,omitempty"`
	// Norm is the constant of [ConstantNorm].
	Norm float64 `json:"norm,omitempty"`
}

// Resolved returns the loss with its defaults filled in.
func (l Loss) Resolved() Loss {
	if l.Surrogate == "" {
		l.Surrogate = PPO
	}
	if l.Clip.Low == 0 && l.Clip.High == 0 {
		dual := l.Clip.Dual
		l.Clip = l.Surrogate.Clip()
		l.Clip.Dual = dual
	}
	if l.KL.Coefficient != 0 {
		l.KL.Estimator = l.KL.estimator()
	}
	l.Aggregation = l.aggregation()
	return l
}

// Validate returns an error naming the first field that is out of range, or
// that the surrogate or aggregation would not look at.
func (l Loss) Validate() error {
	known := false
	r := l.Resolved()
	for _, s := range Surrogates() {
		known = known || s == r.Surrogate
	}
	c := r.Clip
	switch {
	case !known:
		return fmt.Errorf("%w: surrogate %q: must be one of %v", ErrInvalid, l.Surrogate, Surrogates())
	case !(c.Low >= 0) || math.IsInf(c.Low, 0):
		return fmt.Errorf("%w: clip low %v: must be a number from 0", ErrInvalid, c.Low)
	case !(c.High >= 0) || math.IsNaN(c.High):
		return fmt.Errorf("%w: clip high %v: must be at least 0", ErrInvalid, c.High)
	case (r.Surrogate == PPO || r.Surrogate == GSPO) && c.Low >= 1:
		return fmt.Errorf("%w: clip low %v: must be at least 0 and below 1", ErrInvalid, c.Low)
	case r.Surrogate == CISPO && c.Low > 1:
		return fmt.Errorf("%w: clip low %v: must be at most 1, which is no lower bound", ErrInvalid, c.Low)
	case r.Surrogate == Reinforce && (c.Low != 0 || c.High != 0):
		return fmt.Errorf("%w: clip %v to %v: reinforce has no ratio to clip", ErrInvalid, c.Low, c.High)
	case c.Dual != 0 && r.Surrogate != PPO:
		return fmt.Errorf("%w: dual clip %v: %s has none", ErrInvalid, c.Dual, r.Surrogate)
	case c.Dual != 0 && !(c.Dual > 1):
		return fmt.Errorf("%w: dual clip %v: must be above 1, or 0 for none", ErrInvalid, c.Dual)
	case !finite(l.Entropy):
		return fmt.Errorf("%w: entropy coefficient %v: must be a number", ErrInvalid, l.Entropy)
	}
	if err := l.KL.Validate(); err != nil {
		return err
	}
	return l.validateAggregation()
}

// Token is one sampled token as the loss sees it. Log-probabilities are natural
// logarithms.
type Token struct {
	Logprob float64 // under the policy being trained
	// Old is the log-probability that the ratio is taken against: under the
	// policy that sampled the token, or under the one before the update.
	Old       float64
	Advantage float64
	// Correction multiplies the surrogate: 1, or a weight of [Correction].
	Correction float64
	Reference  float64 // log-probability under the reference policy; read when there is a KL term
	Entropy    float64 // of the distribution that the token is from; read when there is an entropy term
}

// TokenLoss is the loss of one token.
type TokenLoss struct {
	// Loss is the whole loss of the token, KL and entropy terms included.
	Loss float64
	// Gradient is the derivative with respect to the token's log-probability. The
	// derivative with respect to its entropy is -[Loss.Entropy].
	Gradient float64
	Ratio    float64 // of the token, or of its sequence
	KL       float64 // estimate of the divergence from the reference; 0 without a KL term
	// Clipped: a bound decided. ClippedDual: the dual bound did.
	Clipped, ClippedDual bool
}

// Sequence computes the loss of the sampled tokens of one row, in order, into
// out, which must be as long. The loss must be [Loss.Resolved] and valid. A
// token's share of the loss of the batch is not in it; see [Loss.Shares].
func (l *Loss) Sequence(tokens []Token, out []TokenLoss) {
	switch l.Surrogate {
	case GSPO:
		l.sequenceRatio(tokens, out)
	case GMPO:
		l.geometricMean(tokens, out)
	default:
		for i := range tokens {
			out[i] = l.token(&tokens[i])
		}
	}
	for i := range tokens {
		t, o := &tokens[i], &out[i]
		o.Loss *= t.Correction
		o.Gradient *= t.Correction
		if l.KL.Coefficient != 0 {
			value, gradient := l.KL.Estimator.Token(t.Logprob, t.Reference)
			o.KL = value
			o.Loss += l.KL.Coefficient * value
			o.Gradient += l.KL.Coefficient * gradient
		}
		if l.Entropy != 0 {
			o.Loss -= l.Entropy * t.Entropy
		}
	}
}

// token is the surrogate of a token that depends on no other.
func (l *Loss) token(t *Token) TokenLoss {
	delta := t.Logprob - t.Old
	ratio := math.Exp(clampLog(delta))
	a := t.Advantage
	switch l.Surrogate {
	case CISPO:
		held := min(max(ratio, 1-l.Clip.Low), 1+l.Clip.High)
		return TokenLoss{Loss: -held * a * t.Logprob, Gradient: -held * a, Ratio: ratio, Clipped: held != ratio}
	case Reinforce:
		return TokenLoss{Loss: -a * t.Logprob, Gradient: -a, Ratio: ratio}
	case DPPO:
		moved := math.Exp(t.Logprob) - math.Exp(t.Old)
		if a > 0 && moved > l.Clip.High || a < 0 && -moved > l.Clip.Low {
			return TokenLoss{Ratio: ratio, Clipped: true}
		}
		o := TokenLoss{Loss: -a * ratio, Gradient: -a * ratio, Ratio: ratio}
		if math.Abs(delta) > maxLogRatio {
			o.Gradient = 0
		}
		return o
	default:
		return l.clip(ratio, delta, a)
	}
}

// clip is the clipped surrogate for a ratio and its logarithm.
func (l *Loss) clip(ratio, delta, a float64) TokenLoss {
	plain := -a * ratio
	clipped := -a * min(max(ratio, 1-l.Clip.Low), 1+l.Clip.High)
	o := TokenLoss{Loss: plain, Gradient: plain, Ratio: ratio}
	if math.Abs(delta) > maxLogRatio {
		o.Gradient = 0 // the clamp of the logarithm is flat out there
	}
	if clipped > plain {
		o.Loss, o.Gradient, o.Clipped = clipped, 0, true
	}
	if l.Clip.Dual != 0 && a < 0 {
		if bound := -a * l.Clip.Dual; o.Loss > bound {
			o.Loss, o.Gradient, o.ClippedDual = bound, 0, true
		}
	}
	return o
}

// sequenceRatio is GSPO. The ratio is that of the sequence, of which each token
// brings an equal part of the logarithm; summed over the row, and with equal
// weights, the gradients are those of the sequence's loss.
func (l *Loss) sequenceRatio(tokens []Token, out []TokenLoss) {
	sum := 0.0
	for i := range tokens {
		sum += tokens[i].Logprob - tokens[i].Old
	}
	delta := sum / float64(max(1, len(tokens)))
	ratio := math.Exp(clampLog(delta))
	for i := range tokens {
		out[i] = l.clip(ratio, delta, tokens[i].Advantage)
	}
}

// geometricMean is GMPO.
func (l *Loss) geometricMean(tokens []Token, out []TokenLoss) {
	n := float64(max(1, len(tokens)))
	a := 0.0
	for i := range tokens {
		a += tokens[i].Advantage / n
	}
	sign := 1.0
	if a < 0 {
		sign = -1
	}
	sum := 0.0
	for i := range tokens {
		delta := clampLog(tokens[i].Logprob - tokens[i].Old)
		held := sign * min(sign*delta, sign*min(max(delta, -l.Clip.Low), l.Clip.High))
		out[i] = TokenLoss{Clipped: held != delta}
		sum += held
	}
	ratio := math.Exp(sum / n)
	for i := range out {
		out[i].Ratio, out[i].Loss = ratio, -a*ratio
		if d := tokens[i].Logprob - tokens[i].Old; !out[i].Clipped && math.Abs(d) <= maxLogRatio {
			out[i].Gradient = -a * ratio
		}
	}
}

// Batch are the tokens of a batch: one slice a row, one entry a token, all of
// the same shape. Entries where Mask is 0 are never read.
type Batch struct {
	Logprobs   [][]float32 // under the policy being trained
	Old        [][]float32 // see [Token.Old]
	Advantages [][]float32
	Mask       [][]float32
	// Correction multiplies the surrogate of each token; nil means 1.
	Correction [][]float32
	// Reference are log-probabilities under the reference policy; needed when
	// there is a KL term.
	Reference [][]float32
	// Entropy is that of the policy at each token; needed when there is an
	// entropy term.
	Entropy [][]float32
	// Rollouts names the rollout of each row; needed by [RolloutMean].
	Rollouts []string
}

// Evaluation is the loss of a batch and how it came about.
type Evaluation struct {
	Value float64
	// Gradient is the derivative with respect to Logprobs, 0 off the mask.
	Gradient [][]float32
	// The rest are means over sampled tokens: share of clipped tokens and of
	// tokens at the dual bound, mean of old minus new log-probability and its k3
	// estimate, mean ratio, and the estimate of the divergence from the reference.
	ClipFraction     float64
	DualClipFraction float64
	KL1, KL3         float64
	RatioMean        float64
	Reference        float64
}

// Evaluate computes the loss of a batch that is one optimiser step.
func (l Loss) Evaluate(b Batch) (Evaluation, error) {
	if err := l.Validate(); err != nil {
		return Evaluation{}, err
	}
	l = l.Resolved()
	if err := b.validate(l); err != nil {
		return Evaluation{}, err
	}
	sizes := make([]Size, len(b.Mask))
	for i, m := range b.Mask {
		sizes[i].Tokens = float64(sampled(m))
		if b.Rollouts != nil {
			sizes[i].Rollout = b.Rollouts[i]
		}
	}
	shares := l.Shares(sizes)
	divisor := l.Divisor(sizes, shares)
	out := Evaluation{Gradient: make([][]float32, len(b.Mask))}
	var total float64
	var tokens []Token
	for i, mask := range b.Mask {
		out.Gradient[i] = make([]float32, len(mask))
		tokens = b.tokens(tokens[:0], i)
		losses := make([]TokenLoss, len(tokens))
		l.Sequence(tokens, losses)
		weight, n := shares[i]/divisor, 0
		for t, m := range mask {
			if m == 0 {
				continue
			}
			o := losses[n]
			out.Value += weight * o.Loss
			out.Gradient[i][t] = float32(weight * o.Gradient)
			out.count(o, tokens[n])
			n++
		}
		total += float64(n)
	}
	total += maskEpsilon
	for _, v := range []*float64{&out.ClipFraction, &out.DualClipFraction, &out.KL1, &out.KL3, &out.RatioMean, &out.Reference} {
		*v /= total
	}
	return out, nil
}

func (e *Evaluation) count(o TokenLoss, t Token) {
	if o.Clipped {
		e.ClipFraction++
	}
	if o.ClippedDual {
		e.DualClipFraction++
	}
	k3, _ := K3.Token(t.Old, t.Logprob) // tokens come from the old policy
	e.KL1 += clampLog(t.Old - t.Logprob)
	e.KL3 += k3
	e.RatioMean += o.Ratio
	e.Reference += o.KL
}

// tokens appends the sampled tokens of row i.
func (b *Batch) tokens(to []Token, i int) []Token {
	for t, m := range b.Mask[i] {
		if m == 0 {
			continue
		}
		token := Token{
			Logprob: float64(b.Logprobs[i][t]), Old: float64(b.Old[i][t]),
			Advantage: float64(b.Advantages[i][t]), Correction: 1,
		}
		if b.Correction != nil {
			token.Correction = float64(b.Correction[i][t])
		}
		if b.Reference != nil {
			token.Reference = float64(b.Reference[i][t])
		}
		if b.Entropy != nil {
			token.Entropy = float64(b.Entropy[i][t])
		}
		to = append(to, token)
	}
	return to
}

func (b *Batch) validate(l Loss) error {
	parts := []struct {
		name     string
		rows     [][]float32
		required bool
	}{
		{"log-probabilities", b.Logprobs, true},
		{"old log-probabilities", b.Old, true},
		{"advantages", b.Advantages, true},
		{"correction", b.Correction, false},
		{"reference log-probabilities", b.Reference, l.KL.Coefficient != 0},
		{"entropies", b.Entropy, l.Entropy != 0},
	}
	for _, p := range parts {
		if p.rows == nil && !p.required {
			continue
		}
		if len(p.rows) != len(b.Mask) {
			return fmt.Errorf("%w: %d rows of %s for %d rows of mask", ErrInvalid, len(p.rows), p.name, len(b.Mask))
		}
		for i, row := range p.rows {
			if len(row) != len(b.Mask[i]) {
				return fmt.Errorf("%w: row %d: %d %s for %d mask entries", ErrInvalid, i, len(row), p.name, len(b.Mask[i]))
			}
		}
	}
	if (b.Rollouts != nil || l.Aggregation == RolloutMean) && len(b.Rollouts) != len(b.Mask) {
		return fmt.Errorf("%w: %d rollouts for %d rows of mask", ErrInvalid, len(b.Rollouts), len(b.Mask))
	}
	return nil
}
