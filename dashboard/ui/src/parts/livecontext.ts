import { createContext } from 'react';
import type { Live } from '../live';

export const LiveContext = createContext<Live>(null as unknown as Live);
