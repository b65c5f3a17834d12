// What became of the tasks of a run.
import type { Browsed, Run, Sample, SamplesPage, StepMetrics, TaskTried } from '../types';
import { member, number } from './format';

/** The rollout that stands for the others: its reward is the closest to their mean. */
export function typical(t: TaskTried): Sample | undefined {
  const far = (s: Sample) => (s.reward === null || t.reward === null ? Infinity : Math.abs(s.reward - t.reward));
  return t.rollouts.reduce<Sample | undefined>((best, s) => (best === undefined || far(s) < far(best) ? s : best), undefined);
}

/** A mean reward with how many it is of. */
export function rewardOf(t: TaskTried): string {
  if (t.reward === null) return t.tried === 1 ? 'none' : `none (of ${t.tried})`;
  if (t.tried === 1) return number(t.reward);
  return `${number(t.reward)} (${t.rewarded === t.tried ? '' : `${t.rewarded} of `}${t.tried})`;
}

export function signed(change: number | null): string {
  return change === null ? '–' : `${change > 0 ? '+' : ''}${number(change).replaceAll('-', '−')}`;
}

const modes: Record<string, string> = { val: 'validation', train: 'training', test: 'test', none: 'other' };

export function modeName(mode: string): string {
  return modes[mode] ?? mode;
}

/** The steps that can be compared: those that were met, and of validation those that the metrics know. */
export function stepsOf(page: SamplesPage | undefined, metrics: StepMetrics[]): number[] {
  const known = metrics.filter((m) => (page?.mode === 'val' ? m.values['accuracy'] !== undefined : page?.mode === 'train' && m.step > 0)).map((m) => m.step);
  return [...new Set([...(page?.steps ?? []), ...known])].sort((a, b) => a - b);
}

/** Why there is no task with a before and an after; undefined when there is one. */
export function whyNothing(page: SamplesPage, run: Pick<Run, 'status' | 'algorithm'>, chosen: boolean): { title: string; advice: string } | undefined {
  if (page.improved + page.worsened + page.unchanged + page.unrewarded > 0) return undefined;
  if (page.modes.length === 0) {
    if (page.stepless > 0) return { title: `None of its ${number(page.stepless)} rollouts says which step it belongs to`, advice: 'Steps are read from agl.step in the metadata of a rollout.' };
    return { title: run.status === 'running' ? 'This run has no rollout yet' : 'This run asked for no rollouts', advice: run.status === 'running' ? '' : `Rollouts that ${run.algorithm} learnt from, if any, belong to another run.` };
  }
  const tasks = `${number(page.once)} ${modeName(page.mode)} ${page.once === 1 ? 'task' : 'tasks'}`;
  if (page.once === 0) return { title: `No ${modeName(page.mode)} task was tried`, advice: 'Choose other rollouts to compare.' };
  if (chosen) return { title: 'No task was tried at both steps', advice: `There are ${tasks}; choose other steps, or none.` };
  return {
    title: page.once === 1 ? `The ${modeName(page.mode)} task was tried at one step only` : `Each of the ${tasks} was tried at one step only`,
    advice: page.mode === 'val' ? 'The next validation can be compared with this one.' : 'Tasks come up again once all were drawn; validation (validate_every) tries the same tasks again and again.',
  };
}

export interface AtStep {
  step: number;
  group: string | undefined;
  mean: number | null;
  tried: number;
  rewarded: number;
}

/** Rollouts of one task by the step that they are of. */
export function acrossSteps(items: Browsed[]): AtStep[] {
  const steps = new Map<number, Browsed[]>();
  for (const r of items) {
    const step = Number(member(r.metadata, 'agl.step') ?? NaN);
    if (!Number.isFinite(step)) continue;
    const list = steps.get(step);
    if (list) list.push(r);
    else steps.set(step, [r]);
  }
  return [...steps]
    .sort((a, b) => a[0] - b[0])
    .map(([step, list]) => {
      const rewards = list.map((r) => r.digest.reward).filter((x): x is number => x !== null);
      return { step, group: member(list[0]!.metadata, 'agl.group'), mean: rewards.length === 0 ? null : rewards.reduce((a, b) => a + b, 0) / rewards.length, tried: list.length, rewarded: rewards.length };
    });
}
