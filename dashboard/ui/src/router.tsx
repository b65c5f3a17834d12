import { createBrowserRouter, Navigate } from 'react-router-dom';
import { base } from './api';
import { App } from './app';
import { Failure } from './parts/failure';

// Each page is a file of its own, so that the first one is there soon.
export const router = createBrowserRouter(
  [
    {
      element: <App />,
      errorElement: <Failure />,
      hydrateFallbackElement: <></>,
      children: [
        { index: true, lazy: () => import('./pages/overview') },
        { path: 'overview', element: <Navigate to="/" replace /> },
        { path: 'rollouts', lazy: () => import('./pages/rollouts') },
        { path: 'rollouts/:id', lazy: () => import('./pages/rollout') },
        { path: 'runs', lazy: () => import('./pages/runs') },
        { path: 'runs/:id', lazy: () => import('./pages/run') },
        { path: 'groups', lazy: () => import('./pages/groups') },
        { path: 'resources', lazy: () => import('./pages/resources') },
        { path: 'resources/:id', lazy: () => import('./pages/resources') },
        { path: 'models', lazy: () => import('./pages/models') },
        { path: 'workers', lazy: () => import('./pages/workers') },
        { path: 'runners', element: <Navigate to="/workers" replace /> },
        { path: 'store', lazy: () => import('./pages/store') },
        { path: 'traces', lazy: () => import('./pages/traces') },
        { path: '*', lazy: () => import('./pages/missing') },
      ],
    },
  ],
  { basename: base === '/' ? '/' : base.slice(0, -1) },
);
