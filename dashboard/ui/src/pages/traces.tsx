import { Navigate, useSearchParams } from 'react-router-dom';

/** Links to the traces of a rollout, as other dashboards of the protocol write them. */
export function Component() {
  const [q] = useSearchParams();
  const rollout = q.get('rolloutId');
  if (rollout === null) return <Navigate to="/rollouts" replace />;
  const attempt = q.get('attemptId');
  return <Navigate to={`/rollouts/${encodeURIComponent(rollout)}?tab=timeline${attempt === null ? '' : `&attempt=${encodeURIComponent(attempt)}`}`} replace />;
}
