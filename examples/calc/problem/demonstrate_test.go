package problem_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"agentlightning/examples/calc/problem"
)

// Demonstrations are noisy in their choices and right in everything else.
func TestDemonstrate(t *testing.T) {
	t.Parallel()
	d := generate(t, problem.Config{Seed: 5, Train: 8000})
	noise := problem.Noise{Operation: .2, Operands: .5, Later: .8, Length: .8}
	r := rand.New(rand.NewPCG(1, 2))
	var lengths, products, sums, pairs, triples, later, wholeLater share
	for _, p := range d.Train {
		demo := problem.Demonstrate(p, noise, r)
		if demo.Question != p.Question || len(demo.Calls) == 0 || demo.Answer != demo.Calls[len(demo.Calls)-1].Result {
			t.Fatalf("%s: %+v, want the question, calls, and the last result as the answer", p.ID, demo)
		}
		for i, c := range demo.Calls {
			if got, err := problem.Calculate(c.Expression); err != nil || got != c.Result {
				t.Errorf("%s: call %s has result %s, the calculator says %s, %v", p.ID, c.Expression, c.Result, got, err)
			}
			if i > 0 && !strings.HasPrefix(c.Expression, demo.Calls[i-1].Result) {
				t.Errorf("%s: call %s does not go on with %s", p.ID, c.Expression, demo.Calls[i-1].Result)
			}
		}
		lengths.add(len(demo.Calls) == len(p.Steps))
		right, first := p.Steps[0], demo.Calls[0].Expression
		if right.Operator == problem.Multiply || right.Operator == problem.Divide {
			products.add(strings.Contains(first, string(right.Operator)))
		} else {
			sums.add(strings.Contains(first, string(right.Operator)))
		}
		numbers := strings.FieldsFunc(first, sign)
		same := numbers[0] == itoa(right.Left) && numbers[1] == itoa(right.Right)
		if len(number.FindAllString(p.Question, -1)) == 2 {
			pairs.add(same)
		} else {
			triples.add(same)
		}
		if len(p.Steps) == 2 && len(demo.Calls) == 2 {
			second := demo.Calls[1].Expression
			operator := string(p.Steps[1].Operator)
			wholeLater.add(strings.HasSuffix(second, operator+itoa(p.Steps[1].Right)))
			later.add(strings.Contains(strings.TrimPrefix(second, demo.Calls[0].Result), operator))
		}
	}
	// What is not chosen with care is right by luck: one of two lengths; one of
	// two operations, but never a product or quotient; one of two or of six
	// ordered pairs of numbers.
	products.expect(t, "products and quotients", .2)
	sums.expect(t, "sums and differences", .2+.8/2)
	lengths.expect(t, "lengths", .8+.2/2)
	pairs.expect(t, "pairs of two numbers", .5+.5/2)
	triples.expect(t, "pairs of three numbers", .5+.5/6)
	if later.value() < .8 || wholeLater.value() < .8*.8 {
		t.Errorf("later steps: operations right in %.2f, all right in %.2f, want at least 0.8 and 0.64", later.value(), wholeLater.value())
	}
}

type share struct{ right, of float64 }

func (s *share) add(right bool) {
	s.of++
	if right {
		s.right++
	}
}

func (s *share) value() float64 { return s.right / s.of }

// expect allows four standard deviations.
func (s *share) expect(t *testing.T, name string, want float64) {
	t.Helper()
	if limit := 4 * math.Sqrt(want*(1-want)/s.of); math.Abs(s.value()-want) > limit {
		t.Errorf("share of right %s is %.3f of %.0f, want %.3f ± %.3f", name, s.value(), s.of, want, limit)
	}
}

func sign(r rune) bool { return strings.ContainsRune("+-*/", r) }
